"""Counters that several clients use, or several proxies: whose use muted whom, and how close to the limit they run."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from tests.analysis.gold import oracle
from tests.analysis.golden import hours_of
from tests.analysis.records import Document, document, row

pytestmark = pytest.mark.spark

SECONDS = 30
EQUAL = {f"member-{n:02}": 100 for n in range(30)}
BIG = {"big": 27_000, **EQUAL}
ALONE = {"alone": 5}
Rows = list[dict[str, Any]]


def of_group(used: Mapping[str, int], seconds: int = SECONDS) -> Iterator[Document]:
    """Members of one group use its counter in each second, and each is muted for half of it."""
    for second in range(seconds):
        held: dict[str, Any] = {"produce_muted_ms": 500, "produce_throttled": 1, "produce_limit": 1e3}
        rule = "user-group=tenant-a"
        yield document(
            second, [row(user, "app", produce_rule=rule, produce_bytes=n, **held) for user, n in used.items()]
        )


def then_silent() -> Iterator[Document]:
    """A burst, and half a minute in which all wait."""
    for each in of_group({"bursts": 900_000, "waits": 100_000}):
        if each["seq"]:
            each["rows"]["produce_bytes"] = [0, 0]
        yield each


def two_owners() -> list[Document]:
    """One counter at two proxies, of 1 s and 10 s, both with a quarter of the limit; then the second one alone."""
    columns: dict[str, Any] = {"produce_rule": "user=alice", "produce_limit": 1000.0}
    often = [document(n, [row(produce_bytes=250, **columns)], owned=1, second=n) for n in range(120)]
    seldom = [
        document(n, [row(produce_bytes=2500, **columns)], owned=1, second=10 * n, instance="edge-2", interval_ms=10_000)
        for n in range(24)
    ]
    return [*often, *seldom]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Rows]]:
    """The tables of each recording, each in an hour of its own."""
    recordings = {"equal": of_group(EQUAL), "big": of_group(BIG), "alone": of_group(ALONE), "silent": then_silent()}
    place, hours = hours_of(spark, {**recordings, "owners": two_owners()}, tmp_path_factory.mktemp("several"))
    found: dict[str, dict[str, Rows]] = {name: {} for name in hours}
    for table in ("shared", "readings", "counters"):
        rows = ds.dataset(f"{place}/gold/{table}_hour", partitioning="hive").to_table().to_pylist()
        for name, period in hours.items():
            assert period.begin is not None
            found[name][table] = [each for each in rows if int(each["hour"]) == period.begin.hour]
    return found


@pytest.mark.parametrize(("name", "used"), [("equal", EQUAL), ("big", BIG), ("alone", ALONE)])
def test_parts_of_each_mute_add_up_to_the_whole(
    tables: dict[str, dict[str, Rows]], name: str, used: Mapping[str, int]
) -> None:
    caused: Counter[str] = Counter()
    for each in tables[name]["shared"]:
        caused[each["victim_user"]] += each["caused_ms"]
    assert caused == pytest.approx(dict.fromkeys(used, 500.0 * SECONDS))


def test_equal_members_mute_each_other_as_the_others(tables: dict[str, dict[str, Rows]]) -> None:
    rows = tables["equal"]["shared"]
    others = [(each["clients"], each["caused_ms"]) for each in rows if each["is_rest"]]
    assert others == [(29, pytest.approx(500 * SECONDS * 29 / 30))] * 30
    assert {each["user"] for each in rows if each["user"] == each["victim_user"]} == {*EQUAL}


def test_one_big_member_is_named_for_each_victim(tables: dict[str, dict[str, Rows]]) -> None:
    by_big = {each["victim_user"]: each["caused_ms"] for each in tables["big"]["shared"] if each["user"] == "big"}
    assert by_big == pytest.approx(dict.fromkeys(BIG, 500 * SECONDS * 0.9))
    others = {each["victim_user"]: each["clients"] for each in tables["big"]["shared"] if each["is_rest"]}
    assert others == {"big": 30, **dict.fromkeys(EQUAL, 29)}


def test_a_client_alone_is_muted_by_itself(tables: dict[str, dict[str, Rows]]) -> None:
    [only] = tables["alone"]["shared"]
    assert (only["user"], only["victim_user"], only["is_rest"]) == ("alone", "alone", False)


def test_mutes_while_nobody_uses_anything_are_laid_to_the_last_use(tables: dict[str, dict[str, Rows]]) -> None:
    found = {(each["user"], each["victim_user"]): each["caused_ms"] for each in tables["silent"]["shared"]}
    whole = 500 * SECONDS
    assert found == pytest.approx(
        {(by, of): whole * share for of in ("bursts", "waits") for by, share in (("bursts", 0.9), ("waits", 0.1))}
    )


def test_a_counter_of_two_proxies_has_the_use_of_both(tables: dict[str, dict[str, Rows]]) -> None:
    [found] = tables["owners"]["readings"]
    [counter] = tables["owners"]["counters"]
    assert counter["interval_ms"] == 10_000
    [expected] = oracle.readings(two_owners()).values()
    shares = dict(zip(found["values"], found["seconds"], strict=True))
    assert shares == pytest.approx(expected["values"])
    assert shares[0.5] >= 100
    assert found["max"] == pytest.approx(0.5)
    assert (found["busy_s"], found["used_s"], found["over_s"]) == (240, 240, 0)
