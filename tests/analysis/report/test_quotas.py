"""What a report says of each kind of quota, of exempt clients, of limits in shadow, and of who connected."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from analysis.metrics import addresses, rules
from analysis.metrics.rates import Rates
from analysis.report import job
from tests.analysis.records import Document, document, framed, made, row, usage
from tests.analysis.whatif.test_refusing import SECONDS, recorded

pytestmark = pytest.mark.spark


CAP: Final = "cap user-group=tenant-a"
UNDER_CAP: Final = 20


def _under_a_cap() -> Iterator[dict[str, Any]]:
    held = {
        "fetch_muted_ms": 900,
        "fetch_throttled": 3,
        "fetch_cap_rule": CAP,
        "fetch_cap_muted_ms": 900,
        "fetch_cap_throttled": 3,
    }
    for number in range(UNDER_CAP):
        yield row(
            f"user-{number}",
            "app",
            fetch_bytes=100 + number,
            bytes_out=100 + number,
            fetch_caps=CAP,
            fetch_cap_limits="3000",
            **(held if number == UNDER_CAP - 1 else {}),
        )


def everything() -> list[Document]:
    group = {"produce_rule": "user-group=evil", "produce_limit": 2e6, "produce_muted_ms": 100, "produce_throttled": 2}
    shadow = {
        "fetch_bytes": 5000,
        "fetch_shadow_limit": 100.0,
        "fetch_shadow_throttled": 3,
        "fetch_shadow_muted_ms": 50,
    }
    mutations = {"mutation_partitions": 2, "mutation_rule": "user=alice", "mutation_limit": 5.0}
    more = [
        row("eve", "x", produce_bytes=10, **group),
        row("mallory", "y", produce_bytes=10, **group),
        row("sam", "z", **shadow),
        row("alice", "admin", broker=1, mutation_muted_ms=20, mutation_throttled=1, **mutations),
        row("alice", "admin", broker=2, **mutations),
        row(None, None, broker=-1, accept_waits=2, accept_wait_ms=300),
        *_under_a_cap(),
    ]
    found = recorded()
    for second, each in enumerate(found):
        if second % 10:
            extra = document(second, more)["rows"]
            each["rows"] = {name: [*values, *extra[name]] for name, values in each["rows"].items()}
    return found


def test_the_tables_and_the_page(spark: SparkSession, tmp_path: Path) -> None:
    rows = usage(spark, everything())
    of_rule = {
        (each.kind, each.rule, each.exempt, each.shadow): each for each in framed(made(rows, rules.making())).collect()
    }
    times = SECONDS - SECONDS // 10
    group = of_rule["produce", "user-group=evil", False, False]
    assert (group.used, group.throttled, group.muted_ms, group.most_limit) == (20 * times, 4 * times, 200 * times, 2e6)
    assert of_rule["produce", None, True, False].used == 10**8 * SECONDS
    shadow = of_rule["fetch", None, False, True]
    assert (shadow.used, shadow.throttled, shadow.muted_ms, shadow.least_limit) == (
        *(5000 * times, 3 * times, 50 * times, 100.0),
    )
    refused = of_rule["connection", "ip=<default>", False, False]
    assert (refused.used, refused.throttled, refused.least_limit) == (9 * SECONDS, 4 * SECONDS, 5.0)
    came = {each.ip: each for each in framed(made(rows, addresses.making())).collect()}
    assert came.keys() == {"10.0.0.5", "10.0.0.6", "10.0.0.7", "other", None}
    assert (came["10.0.0.6"].connection_attempts, came["10.0.0.6"].connection_throttled) == (9 * SECONDS, 4 * SECONDS)
    assert came["10.0.0.7"].exempt
    assert (came[None].accept_waits, came[None].accept_wait_ms) == (2 * times, 300 * times)

    written = job.run(rows, job.ReportRequest(None, None, str(tmp_path), Rates(), None))
    page = Path(written.html).read_text(encoding="utf-8")
    throttled, kinds = (
        page[page.index(f'<section id="{name}"') :].split("</section>")[0] for name in ("throttled", "kinds")
    )
    assert f"by <span class=name>{CAP}</span>" in throttled
    [line] = [each for each in kinds.split("<tr>") if f"<td><span class=name>{CAP}</span>" in each]
    assert "user-19 / app" in line
    assert f"{CAP}</span><br><small>" in line, "names do not run into one another"
    assert f"and {UNDER_CAP - 5} more" in line
    assert "2.9 KiB/s" in line
    bill = (Path(written.html).parent / "chargeback.csv").read_text(encoding="utf-8").splitlines()
    [charged] = [each for each in bill if ",user-19," in each and ",bytes_out," in each]
    assert f",{119 * times}" in charged
    for said in (
        "producer_byte_rate: producing, bytes/s per broker",
        "quotas.exempt",
        "it would have been throttled so",
    ):
        assert said in page
    assert "connection_creation_rate: connecting, connections/s of one address" in page
    assert "controller_mutation_rate: changing topics, mutations/s for the whole cluster" in page
    assert "request_percentage:" not in page, "nobody has one"
    assert "10.0.0.6" in page
    assert "waited 108 times" in page
    counters = spark.read.parquet(f"{Path(written.html).parent}/counters").collect()
    assert {(each.kind, each.unit_user, each.broker) for each in counters} == {
        ("produce", "group:evil", 1),
        ("mutation", "alice", -1),
        ("fetch", "group:tenant-a", 1),
        ("connection", "ip:10.0.0.6", -1),
    }
    assert len(counters) == 4
    folder = Path(written.html).parent
    of_tables = {
        name: {each.kind for each in spark.read.parquet(f"{folder}/{name}").select("kind").distinct().collect()}
        for name in ("rules", "capped", "muted", "episodes", "headroom")
    }
    assert of_tables == {
        "rules": {"produce", "fetch", "mutation", "connection"},
        "capped": {"fetch"},
        "muted": {"produce", "fetch", "mutation"},
        "episodes": {"produce", "fetch", "mutation"},
        "headroom": {"produce", "fetch", "mutation", "connection"},
    }, "docs/analysis-report.md, Which table has which kind"


def test_where_nobody_has_a_quota_and_nothing_is_known_of_connections(spark: SparkSession, tmp_path: Path) -> None:
    rows = usage(spark, [document(0, [row("alice", "app", produce_bytes=7, bytes_in=11)])])
    written = job.run(rows, job.ReportRequest(None, None, str(tmp_path), Rates(), None))
    page = Path(written.html).read_text(encoding="utf-8")
    assert "No quota of any kind was in force." in page
    assert "Who connected" not in page
