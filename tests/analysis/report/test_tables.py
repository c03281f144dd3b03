"""The tables of a report of real gold, against what plain Python makes of the same documents."""

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.analysis.gold import oracle, world
from tests.analysis.gold.oracle import HOUR_MS, Name
from tests.analysis.golden import warehouse_of
from tests.analysis.records import Document
from tests.analysis.report.by_hand import SCHEMAS
from tests.analysis.report.test_report import report, table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOST = range(40, 47)


class Reported:
    """Documents, and the report of them."""

    def __init__(self, documents: list[Document], warehouse: str) -> None:
        self.documents, self.warehouse = documents, Path(warehouse)
        self.folder = report(self.warehouse)
        self.limits = {each["counter"]: Name(*(each[field] for field in Name._fields)) for each in self.table("limits")}

    def table(self, name: str) -> list[dict[str, Any]]:
        return table(self.folder, name)


@pytest.fixture(scope="module")
def reported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Two proxies over midnight, with a gap."""
    documents = world.documents(3, [world.MIDNIGHT_MS - 40_000], 80)
    kept = [each for each in documents if each["seq"] not in LOST]
    return Reported(kept, warehouse_of(spark, kept, tmp_path_factory.mktemp("reported")))


def test_handmade_gold_schema_matches_real_gold(reported: Reported) -> None:
    for name, columns in SCHEMAS.items():
        [file, *_] = reported.warehouse.glob(f"gold/{name}_hour/*/*/*/*.parquet")
        import pyarrow.parquet as pq

        schema = pq.read_schema(file)
        assert {field: schema.field(field).type for field in columns} == dict(columns), name


def test_talkers_table_matches_sums_of_documents(reported: Reported) -> None:
    expected: defaultdict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in oracle.rows(reported.documents):
        sums = expected[row["user"], row["client_id"]]
        for name in ("bytes_in", "bytes_out", "requests", "connections_opened", "connections_refused"):
            sums[name] += row[name]
    for charge in oracle.charges(reported.documents):
        if charge["role"] != "shadow" and charge["kind"] != "connection":
            sums = expected[charge["user"], charge["client_id"]]
            sums["muted_ms"] += charge["muted_ms"]
            sums["throttled"] += charge["throttled"]
    found = {(each["user"], each["client_id"]): each for each in reported.table("talkers")}
    assert found.keys() == expected.keys()
    assert {who: {name: found[who][name] for name in sums} for who, sums in expected.items()} == expected


def test_rules_table_matches_charges_of_documents(reported: Reported) -> None:
    names = ("used", "requests", "throttled", "throttle_ms", "muted_ms")
    expected: defaultdict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for charge in oracle.charges(reported.documents):
        key = tuple(charge[name] for name in ("kind", "role", "rule")), bool(charge["exempt"]), charge["mode"]
        for name in names:
            expected[key][name] += charge[name]
    found = {
        (tuple(each[name] for name in ("kind", "role", "rule")), each["exempt"], each["mode"]): {
            n: each[n] for n in names
        }
        for each in reported.table("rules")
    }
    assert found == {key: {name: sums[name] for name in names} for key, sums in expected.items()}


def test_headroom_table_matches_percentiles_of_all_intervals(reported: Reported) -> None:
    """Percentiles of every counter, from a list of all intervals."""
    rows = oracle.rows(reported.documents)
    length_ms = max(each["time_ms"] + each["interval_ms"] for each in rows) - min(each["time_ms"] for each in rows)
    values: defaultdict[Name, Counter[float]] = defaultdict(Counter)
    most: defaultdict[Name, float] = defaultdict(float)
    over: Counter[Name] = Counter()
    for (_, name), line in oracle.readings(reported.documents).items():
        values[name].update(line["values"])
        most[name] = max(most[name], line["max"] or 0)
        over[name] += line["over_s"]
    found = {reported.limits[each["counter"]]: each for each in reported.table("headroom")}
    assert found.keys() == {name for name in values if name.rule is not None and values[name]}
    for name, each in found.items():
        busy = sorted(values[name].elements())
        whole = max(round(length_ms / 1000), len(busy))
        intervals = [0.0] * (whole - len(busy)) + busy
        for percentile, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            expected = min(intervals[math.ceil(whole * share) - 1], most[name])
            assert each[percentile] == pytest.approx(expected, rel=1e-6), (name, percentile)
        assert each["max"] == pytest.approx(most[name])
        assert each["over"] == pytest.approx(over[name] / whole)


def test_episodes_table_matches_recorded_mutes(reported: Reported) -> None:
    """Sums of all mutes are in them, and each begins a window after the one before."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for charge in oracle.charges(reported.documents):
        if charge["role"] != "shadow" and charge["kind"] != "connection" and charge["muted_ms"]:
            sums[
                charge["user"], charge["client_id"], charge["broker"], charge["kind"], charge["rule"], charge["mode"]
            ] += charge["muted_ms"]
    found: Counter[tuple[Any, ...]] = Counter()
    ends: dict[tuple[Any, ...], Any] = {}
    keys = ("user", "client_id", "broker", "kind", "rule", "mode")
    for each in sorted(reported.table("episodes"), key=lambda each: each["begin"]):
        key = tuple(each[name] for name in keys)
        found[key] += each["muted_ms"]
        assert key not in ends or (each["begin"] - ends[key]).total_seconds() > 11
        ends[key] = each["end"]
    assert found == sums


def test_loss_table_matches_missing_documents(reported: Reported) -> None:
    missing: Counter[str] = Counter()
    for instance in ("edge-1", "edge-2"):
        seqs = {each["seq"] for each in reported.documents if each["instance"] == instance}
        missing[instance] = max(seqs) + 1 - len(seqs)
    found: Counter[str] = Counter()
    for each in reported.table("loss"):
        found[each["instance"]] += each["missing"]
    assert found == missing
    assert min(missing.values()) >= len(LOST)


def test_caused_table_matches_mutes_of_documents(reported: Reported) -> None:
    expected: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    muted: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    for (_, name, *key), caused_ms in oracle.shared(reported.documents).items():
        expected[name.kind, name.broker, name.rule, *key] += caused_ms
        muted[name.kind, name.broker, name.rule, *key[3:]] += caused_ms
    found: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    whole: dict[tuple[Any, ...], float] = {}
    for each in reported.table("caused"):
        of, victim = (tuple(each[n] for n in names) for names in (("kind", "broker", "rule"), _VICTIM))
        found[*of, each["user"], each["client_id"], each["is_rest"], *victim] += each["caused_ms"]
        whole[each["counter"], *of, *victim] = each["muted_ms"]
    assert found == pytest.approx(dict(expected))
    summed: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    for (_, *key), muted_ms in whole.items():
        summed[*key] += muted_ms
    assert summed == pytest.approx(muted)


_VICTIM = ("victim_user", "victim_client_id")


def test_chargeback_table_matches_use_by_user_and_day(reported: Reported) -> None:
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in oracle.rows(reported.documents):
        day = row["time_ms"] // (24 * HOUR_MS)
        for sku in ("bytes_in", "bytes_out", "requests"):
            expected[row["user"] or "(nobody: refused connections)", day, sku] += row[sku]
    found = {
        (each["SubAccountId"], int(each["ChargePeriodStart"].timestamp()) // 86_400, each["SkuId"]): each[
            "ConsumedQuantity"
        ]
        for each in reported.table("chargeback")
    }
    assert found == expected


def test_over_time_table_sums_to_all_bytes_moved(reported: Reported) -> None:
    moved = sum(row["bytes_in"] + row["bytes_out"] for row in oracle.rows(reported.documents))
    assert sum(each["bytes_in"] + each["bytes_out"] for each in reported.table("over_time")) == moved
