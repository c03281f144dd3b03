"""What reports say of caps: many clients share one counter, and what it held them for is not their quotas'."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.metrics import rules
from analysis.metrics.caps import apart, making, read
from analysis.metrics.clients import clients
from analysis.metrics.headroom import counters, of_period
from analysis.metrics.period import Period, look
from analysis.table.parquet import encode
from analysis.table.scan import FILES, UsageRows
from analysis.table.schema import FILE
from tests.analysis.records import (
    Document,
    document,
    file_of,
    framed,
    headroom_of,
    made,
    muted_of,
    row,
    stored,
    tables,
    usage,
)

pytestmark = pytest.mark.spark

SECONDS: Final = 30
CLIENTS: Final = 20
TENANT, BATCH = "cap user-group=tenant-a", "cap client-id-prefix=batch-"
EACH: Final = "cap client-id-prefix=tmp-, shared=false"
OWN: Final = "user=<default>"


def _client(number: int) -> dict[str, Any]:
    """Return the row of one of twenty under one cap; every fourth has another one, and two have one each besides."""
    caps = {0: f"{TENANT}; {BATCH}", 1: f"{TENANT}; {EACH}"}.get(number % 4, TENANT)
    client_id = {0: "batch-1", 1: f"tmp-{number}"}.get(number % 4, "app")
    limits = {0: "1000; 500", 1: "1000; 50"}.get(number % 4, "1000")
    held = {
        "produce_throttled": 3,
        "produce_throttle_ms": 900,
        "produce_muted_ms": 800,
        "produce_cap_rule": BATCH if number % 4 == 0 else TENANT,
        "produce_cap_throttled": 2,
        "produce_cap_throttle_ms": 700,
        "produce_cap_muted_ms": 600,
    }
    return row(
        f"user-{number}",
        client_id,
        broker=1 + number % 2,
        produce_bytes=10 + number,
        bytes_in=10 + number,
        produce_rule=OWN,
        produce_limit=300.0,
        produce_caps=caps,
        produce_cap_limits=limits,
        **(held if number >= 10 else {}),
    )


def recorded() -> list[Document]:
    rows = [_client(number) for number in range(CLIENTS)]
    free = row("zoe", "free", produce_bytes=7, produce_rule=OWN, produce_limit=300.0, produce_muted_ms=50)
    return [document(second, [*rows, free]) for second in range(SECONDS)]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> UsageRows:
    """Two files: one of a warehouse from before there were caps in it."""
    older = pa.Table.from_pylist(stored(_without_caps()), FILE)
    old = encode(older.drop_columns([name for name in older.column_names if "_cap" in name]))
    return UsageRows(spark.createDataFrame([("new", file_of(recorded())), ("old", old)], FILES))


def _without_caps() -> Iterator[Document]:
    for second in range(SECONDS):
        yield document(second, [row("old", "app", produce_bytes=3, produce_muted_ms=20)], instance="edge-0", boot="0")


@pytest.fixture(scope="module")
def period(rows: UsageRows) -> Period:
    found = look(rows)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def of_caps(rows: UsageRows, period: Period) -> pa.Table:
    return made(rows, making(period.capped)).whole()


def test_only_kinds_that_anybody_has_caps_of_are_looked_for(spark: SparkSession, period: Period) -> None:
    assert period.capped == ("produce",)
    nothing = look(usage(spark, _without_caps()))
    assert nothing is not None
    assert nothing.capped == ()
    assert len(made(usage(spark, _without_caps()), making(()))) == 0
    assert len(made(usage(spark, _without_caps()), making())) == 0


def test_the_sum_of_a_cap_is_that_of_all_its_clients(rows: UsageRows, of_caps: pa.Table) -> None:
    of_rule = {
        each.rule: each
        for each in framed(rules.rules(made(rows, rules.making(("produce",))).whole(), of_caps)).collect()
        if each.kind == "produce"
    }
    everybody = range(CLIENTS)
    tenant, batch, own = of_rule[TENANT], of_rule[BATCH], of_rule[OWN]
    assert tenant.used == SECONDS * sum(10 + number for number in everybody)
    assert batch.used == SECONDS * sum(10 + number for number in everybody if number % 4 == 0)
    assert (tenant.least_limit, tenant.most_limit, batch.most_limit) == (1000, 1000, 500)
    held = [number for number in everybody if number >= 10]
    by_batch = [number for number in held if number % 4 == 0]
    assert (batch.throttled, batch.throttle_ms, batch.muted_ms) == tuple(
        each * SECONDS * len(by_batch) for each in (2, 700, 600)
    )
    by_tenant = len(held) - len(by_batch)
    assert (tenant.throttled, tenant.muted_ms) == (2 * SECONDS * by_tenant, 600 * SECONDS * by_tenant)
    # What is left is the quota's.
    assert (own.throttled, own.muted_ms) == (SECONDS * len(held), SECONDS * (200 * len(held) + 50))
    assert own.used == tenant.used + 7 * SECONDS
    assert of_rule[None].muted_ms == 20 * SECONDS


def test_each_counter_of_a_cap_has_the_clients_that_are_charged_to_it(of_caps: pa.Table) -> None:
    found = framed(of_caps).collect()
    tenant = {each.counter: (each.unit_user, each.unit_client_id) for each in found if each.rule == TENANT}
    assert set(tenant.values()) == {("group:tenant-a", None)}
    assert len(tenant) == 2, "one on each broker"
    each_ = {each.counter: each.unit_client_id for each in found if each.rule == EACH}
    assert sorted(each_.values()) == sorted(f"tmp-{number}" for number in range(CLIENTS) if number % 4 == 1)


def test_who_was_muted_was_so_by_the_cap_and_for_the_rest_by_the_quota(rows: UsageRows, period: Period) -> None:
    found = framed(muted_of(rows, period.capped)).where("kind = 'produce'").collect()
    by_rule = {(each.user, each.rule): each for each in found}
    assert (by_rule["user-12", BATCH].muted_ms, by_rule["user-12", BATCH].limit) == (600, 500)
    assert (by_rule["user-13", TENANT].muted_ms, by_rule["user-13", TENANT].throttle_ms) == (600, 700)
    assert (by_rule["user-13", OWN].muted_ms, by_rule["user-13", OWN].throttled) == (200, 1)
    assert ("user-13", EACH) not in by_rule
    assert by_rule["zoe", OWN].muted_ms == 50
    assert by_rule["old", None].muted_ms == 20
    whole = sum(each["produce_muted_ms"] for each in stored([*recorded(), *_without_caps()]))
    assert sum(each.muted_ms for each in found) == whole


def test_a_cap_is_as_full_as_all_its_clients_make_it(rows: UsageRows, period: Period, of_caps: pa.Table) -> None:
    named = counters(clients(rows, period.rows), of_caps)
    found = framed(of_period(headroom_of(rows, period), named)).collect()
    tenant = {each.broker: each for each in found if each.rule == TENANT}
    for broker in (1, 2):
        used = sum(10 + number for number in range(CLIENTS) if 1 + number % 2 == broker)
        assert tenant[broker].max == pytest.approx(used / 1000)
        assert (tenant[broker].unit_user, tenant[broker].limit) == ("group:tenant-a", 1000)
    assert len([each for each in found if each.rule == EACH]) == CLIENTS // 4


def test_what_records_say_of_caps_may_be_anything() -> None:
    columns = ("produce_rule", "produce_limit", *read(["produce"]))
    hostile = [
        row("a", "x", produce_caps="; ".join(["cap user=a"] * 9), produce_cap_limits="1; 2"),
        row("b", "x", produce_caps="cap user='a; b'; nonsense", produce_cap_limits="NaN"),
        row("c", "x", produce_caps="", produce_cap_limits="a lot"),
        row("d", "x", produce_caps="cap user=d", produce_cap_rule="cap user=e", produce_cap_muted_ms=7),
        row("e", "x", produce_cap_rule="cap user=e", produce_cap_muted_ms=7),
    ]
    [table] = tables(columns, [document(0, hostile)])
    found = [
        (each["produce_rule"], each["produce_limit"], each["produce_muted_ms"])
        for each in apart(table, "produce").to_pylist()
    ]
    assert found[:4] == [("cap user=a", 1, 0), ("cap user=a", 2, 0), *[("cap user=a", None, 0)] * 2]
    assert [each[0] for each in found[4:]] == ["cap user='a; b'", "nonsense", "cap user=d"]
    assert [each[2] for each in found] == [0] * 7
