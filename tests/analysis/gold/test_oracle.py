"""Every gold table, every counter, against what plain Python makes of the same documents."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from analysis.gold import described
from analysis.gold.build import make
from analysis.gold.tables import TABLES
from analysis.warehouse import Inventory
from tests.analysis import records
from tests.analysis.gold import oracle, world
from tests.analysis.gold.oracle import HELD, WHO, Name
from tests.analysis.ingesting import ingest
from tests.analysis.records import Document

pytestmark = pytest.mark.spark

Rows = list[dict[str, Any]]


class Gold:
    """What was made of documents, and they."""

    def __init__(self, documents: Sequence[Document], late: Sequence[Document], warehouse: Path) -> None:
        self.documents = documents
        self.late = late
        self._root = warehouse / "gold"
        counters = self.table("counters")
        self.names = {each["counter"]: Name(*(each[field] for field in Name._fields)) for each in counters}

    def table(self, name: str, grain: str = "hour") -> Rows:
        root = self._root / f"{name}_{grain}"
        found: Rows = []
        for file in (self._root / "made").iterdir():
            known = Inventory.read(file.read_text(encoding="utf-8"))
            hours = [f"hour={hour}/made={version.made}" for hour, version in known.hours.items()]
            for place in hours if grain == "hour" else [f"made={known.day.made}"] if known.day else []:
                path = root / file.stem / place
                found += ds.dataset(path, partitioning="hive", partition_base_dir=str(root)).to_table().to_pylist()
        for each in found:
            if "hour" in each:
                each["at"] = (date.fromisoformat(each["date"]).toordinal() - 719_163) * 24 + int(each["hour"])
        return found


@pytest.fixture(scope="module")
def gold(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Gold:
    """A world over midnight and over the end of an hour, in two runs, the second with documents of the first again."""
    folder = tmp_path_factory.mktemp("gold")
    begins = [world.MIDDAY_MS - 30_000, world.MIDNIGHT_MS - 40_000, world.MIDNIGHT_MS + oracle.HOUR_MS // 2]
    documents = world.documents(7, begins, 70)
    late = [each for number, each in enumerate(documents) if 10 <= number < 40 or _ends_before_midnight(each)]
    first = [each for each in documents if each not in late]
    ingest(spark, folder, [*first, *first[:3]], name="first")
    make(spark, str(folder / "warehouse"))
    ingest(spark, folder, [*late, *first[5:9]], name="late")
    make(spark, str(folder / "warehouse"))
    return Gold(documents, late, folder / "warehouse")


def _ends_before_midnight(each: Document) -> bool:
    begin_ms: int = each["time_ms"]
    return -5000 <= begin_ms - world.MIDNIGHT_MS < 0  # the hour after midnight has some of its windows


def test_each_client_has_its_sums(gold: Gold) -> None:
    assert {
        (each["at"], *(each[n] for n in (*WHO, "mode", "exempt", "interval_ms"))): _only(each, _SUMS)
        for each in gold.table("client")
    } == {key: dict(line) for key, line in oracle.client(gold.documents).items()}


_SUMS = (
    "bytes_in",
    "bytes_out",
    "requests",
    "request_time_ms",
    "connections_opened",
    "connections_refused",
    "accept_waits",
    "accept_wait_ms",
    "rows",
    "active_ms",
    "connections",
    "begin_ms",
    "end_ms",
)


def test_each_charge_is_told_by_rule_cap_and_shadow(gold: Gold) -> None:
    found = {}
    for each in gold.table("charged"):
        name = gold.names.get(each["counter"]) if each["role"] != "shadow" else None
        key: tuple[Any, ...] = (
            each["at"],
            *(each[n] for n in (*WHO, "mode", "exempt", "role")),
            each["kind"],
            each["rule"],
            name,
        )
        found[key] = (*(each[n] for n in ("used", "requests", *HELD)), each["least_limit"], each["most_limit"])
    expected: dict[tuple[Any, ...], Any] = {}
    for (*names, name), line in oracle.charged(gold.documents).items():
        limits = (min(line["limits"]), max(line["limits"])) if line["limits"] else (None, None)
        told = None if names[-1] == "shadow" else name
        expected[*names, name.kind, name.rule, told] = (*(line[n] for n in ("used", "requests", *HELD)), *limits)
    assert found == expected


def test_each_counter_has_the_use_of_its_windows(gold: Gold) -> None:
    found = {(each["at"], gold.names[each["counter"]]): each for each in gold.table("readings")}
    expected = oracle.readings(gold.documents)
    assert found.keys() == expected.keys()
    for key, line in expected.items():
        _require_reading(found[key], line)


def test_a_day_that_is_over_has_the_readings_of_its_hours(gold: Gold) -> None:
    found = {gold.names[each["counter"]]: each for each in gold.table("readings", "day")}
    of_day: dict[Name, dict[str, Any]] = {}
    for (hour, name), line in sorted(oracle.readings(gold.documents).items(), key=lambda each: each[0][0]):
        if hour < oracle.hour_of(world.MIDNIGHT_MS):
            sums = of_day.setdefault(name, {**line, "values": Counter(), "over_s": 0, "busy_s": 0, "used_s": 0})
            for each in ("values", "over_s", "busy_s", "used_s"):
                sums[each] += line[each]
            sums["most_window"] = max(sums["most_window"], line["most_window"])
            sums["max"] = max(filter(None, (sums["max"], line["max"])), default=None)
            sums["limit"] = line["limit"]
    assert found.keys() == of_day.keys()
    for name, line in of_day.items():
        _require_reading(found[name], line)


def _require_reading(found: dict[str, Any], expected: dict[str, Any]) -> None:
    values = sorted(expected["values"].items())
    assert found["values"] == pytest.approx([value for value, _ in values])
    assert found["seconds"] == [count for _, count in values]
    for each in ("over_s", "busy_s", "used_s", "limit"):
        assert found[each] == expected[each], each
    assert found["max"] == (None if expected["max"] is None else pytest.approx(expected["max"]))
    assert found["most_window"] == pytest.approx(expected["most_window"])


def test_gold_muted_table_holds_mutes_as_recorded(gold: Gold) -> None:
    found = Counter(
        (
            *(e[n] for n in WHO),
            e["mode"],
            e["role"],
            _name(gold, e),
            e["begin_ms"],
            e["end_ms"],
            e["used"],
            *(e[n] for n in HELD),
            e["limit"],
        )
        for e in gold.table("muted")
    )
    expected: Counter[tuple[Any, ...]] = Counter()
    for (*who, mode, role, name, begin, end, used, throttled, throttle, muted, limit), times in oracle.muted(
        gold.documents
    ).items():
        told = name.kind if role == "shadow" else name
        expected[*who, mode, role, told, begin, end, used, throttled, throttle, muted, limit] += times
    assert found == expected


def _name(gold: Gold, each: dict[str, Any]) -> Any:
    return each["kind"] if each["role"] == "shadow" else gold.names[each["counter"]]


def test_mutes_are_attributed_to_the_users_of_the_counter(gold: Gold) -> None:
    found = {(e["at"], gold.names[e["counter"]], *(e[n] for n in _CAUSE)): e["caused_ms"] for e in gold.table("shared")}
    assert found == pytest.approx(oracle.shared(gold.documents))
    assert {each["is_rest"] for each in gold.table("shared")} == {True, False}


def test_parts_of_a_mute_add_up_to_the_whole(gold: Gold) -> None:
    caused: Counter[tuple[Any, ...]] = Counter()
    for each in gold.table("shared"):
        caused[each["at"], each["counter"], each["victim_user"], each["victim_client_id"]] += each["caused_ms"]
    muted: Counter[tuple[Any, ...]] = Counter()
    for each in gold.table("charged"):
        if each["muted_ms"] and each["role"] != "shadow" and each["kind"] != "connection":
            muted[each["at"], each["counter"], each["user"], each["client_id"]] += each["muted_ms"]
    assert caused == pytest.approx(muted)


_CAUSE = ("user", "client_id", "is_rest", "victim_user", "victim_client_id")


def test_gold_moments_list_busiest_clients_and_the_rest(gold: Gold) -> None:
    names = ("bytes_in", "bytes_out", "requests", "request_time_ms", "muted_ms")
    found = {
        (e["cluster"], e["broker"], e["user"], e["client_id"], e["at_s"]): _only(e, names)
        for e in gold.table("moments")
    }
    assert found == {key: {name: line[name] for name in names} for key, line in oracle.moments(gold.documents).items()}
    assert {each["is_rest"] for each in gold.table("moments")} == {True, False}


def test_users_have_quarters_of_hours_also_in_days(gold: Gold) -> None:
    moved: Counter[tuple[Any, ...]] = Counter()
    for row in oracle.rows(gold.documents):
        minute = row["time_ms"] // 60_000 % 60 // 15 * 15
        moved[oracle.hour_of(row["time_ms"]), minute, row["user"], row["exempt"]] += row["bytes_in"]
    assert {(e["at"], e["minute"], e["user"], e["exempt"]): e["bytes_in"] for e in gold.table("users")} == moved
    before = {key: value for key, value in moved.items() if key[0] < oracle.hour_of(world.MIDNIGHT_MS)}
    assert {(e["at"], e["minute"], e["user"], e["exempt"]): e["bytes_in"] for e in gold.table("users", "day")} == before


def test_gold_lists_each_document_once_with_late_and_first(gold: Gold) -> None:
    found = gold.table("documents")
    assert Counter(
        (e["instance"], e["boot"], e["seq"], e["begin_ms"], e["end_ms"], e["rows"]) for e in found
    ) == Counter(
        (d["instance"], d["boot"], d["seq"], d["time_ms"], d["time_ms"] + d["interval_ms"], len(d["rows"]["user"]))
        for d in gold.documents
    )
    assert sum(each["late"] for each in found) == len(gold.late)
    assert sum(each["is_first"] for each in found) == 2
    others = sum(row["client_id"] == "sluice:other" for row in oracle.rows(gold.documents))
    nobody = sum(row["user"] is None and row["ip"] is None for row in oracle.rows(gold.documents))
    assert (sum(e["rows_of_others"] for e in found), sum(e["rows_of_nobody"] for e in found)) == (others, nobody)


def test_finished_day_has_every_gold_table(gold: Gold) -> None:
    for table in TABLES:
        assert {str(each["date"]) for each in gold.table(table, "day")} == {"2026-03-01"}, table


def test_heads_of_queries_name_all_columns(gold: Gold) -> None:
    for table in TABLES:
        said = {name for names in described.columns(table) for name in names.split(", ")}
        assert said == gold.table(table, "hour")[0].keys() - {"date", "hour", "at", "made"}, table


def test_gold_made_twice_writes_nothing_new(gold: Gold, spark: SparkSession) -> None:
    assert make(spark, str(gold._root.parent)) == 0


def _only(line: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: line[name] for name in names}


def test_refused_mutations_are_charged_with_zero_use(spark: SparkSession, tmp_path: Path) -> None:
    refused = records.row(mutation_requests=3, mutation_throttled=3, mutation_throttle_ms=900, mutation_limit=1.0)
    ingest(spark, tmp_path, [records.document(0, [refused])])
    make(spark, str(tmp_path / "warehouse"))
    charged = ds.dataset(tmp_path / "warehouse/gold/charged_hour", partitioning="hive").to_table().to_pylist()
    told = [(each["kind"], each["role"], each["used"], each["throttled"], each["throttle_ms"]) for each in charged]
    assert told == [("mutation", "quota", 0, 3, 900)]
