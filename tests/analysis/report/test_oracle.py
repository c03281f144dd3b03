"""Every column of every table of a report, of real gold, against plain Python over the same documents."""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.gold.build import make
from tests.analysis.gold import world
from tests.analysis.ingesting import ingest
from tests.analysis.records import Document
from tests.analysis.report.charged import HOUR_MS, Row
from tests.analysis.report.oracle import Oracle
from tests.analysis.report.test_report import table as with_places

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ZONE: Final = ZoneInfo("Africa/Cairo")
"""2026-04-24 has no midnight there."""
RATES: Final = """currency: EUR
rates:
  bytes_in: {per: 1GiB, price: 0.02}
  bytes_out: {per: 1kB, price: 3}
  requests: {per: 7, price: 0.1}
"""
PER: Final = {"bytes_in": (2**30, 0.02), "bytes_out": (1000, 3.0), "requests": (7, 0.1)}
UNITS: Final = {"bytes_in": "1GiB", "bytes_out": "1kB", "requests": "7"}
NAMES: Final = {
    "dave": "=cmd|' /C calc'!A0",
    "erin": "\u202eevil\"'&amp;{{ 7 * 7 }}",
    "frank": "a;=b\nc",
    "grace": "_Ünïcode Ω, client-id=x",
    "heidi": "sluice:other",
}
"""Names that no rule has in it."""


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


BEFORE, NOON, MIDNIGHT, LAST = map(
    _ms, ("2026-04-20T12:00", "2026-04-23T11:58", "2026-04-23T21:59", "2026-04-28T12:30")
)
BEGINS: Final = {BEFORE: 50, NOON: 50, MIDNIGHT: 110, LAST: 50}
SINCE_MS, UNTIL_MS = _ms("2026-04-23T11:00"), _ms("2026-04-28T13:00")


def documents() -> list[Document]:
    """Two clusters: brokers of ``east`` have owners. edge-2 reports every 10 s; both are restarted, and lose some."""
    found = []
    for number, (begin_ms, seconds) in enumerate(BEGINS.items()):
        for each in world.documents(number, [begin_ms], seconds):
            second = (each["time_ms"] - begin_ms) // 1000
            of_ten = each["instance"] == "edge-2"
            if of_ten and second % 10:
                continue
            each |= {"cluster": "east" if second // 10 % 2 else "demo", "owned": int(second // 10 % 2)}
            if of_ten:
                each |= {"interval_ms": 10_000, "time_ms": begin_ms + second * 1000, "cluster": "east", "owned": 1}
            each["boot"] = f"{each['instance']} {number // 2 if of_ten else max(number, 1)} {each['cluster']}"
            users = each["rows"]["user"]
            each["rows"]["user"] = [NAMES.get(user, user) for user in users]
            for place, user in enumerate(users):
                if user is None and each["rows"]["ip"][place] is None:
                    each["rows"]["accept_waits"][place], each["rows"]["accept_wait_ms"][place] = (
                        second % 3,
                        second % 3 * 70,
                    )
            found.append(each)
    numbers: Counter[str] = Counter()
    for each in found:
        each["seq"] = numbers[each["boot"]]
        numbers[each["boot"]] += 1
        each["dropped_documents"] = each["seq"] // 20
    return [
        each
        for each in found
        if each["seq"] % 11 != 10 and not (each["boot"].startswith("edge-1 3") and each["seq"] < 4)
    ]


def is_late(each: Document) -> bool:
    """Documents that the second run brings, of hours that the first one had passed."""
    return bool(each["seq"] % 7 == 3 and each["time_ms"] < LAST // HOUR_MS * HOUR_MS)


class Reported:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        every = documents()
        late = [each for each in every if each["seq"] % 7 == 3]
        first = [each for each in every if each["seq"] % 7 != 3]
        self.warehouse = folder / "warehouse"
        ingest(spark, folder, [*first, *first[::9], "{", "[]"], name="first")
        make(spark, str(self.warehouse))
        ingest(spark, folder, [*late, *first[::5], "{"], name="late")
        make(spark, str(self.warehouse))
        self.of = Oracle(every, SINCE_MS, UNTIL_MS, is_late, ZONE)
        length_ms = UNTIL_MS - SINCE_MS
        self.before = Oracle(every, SINCE_MS - length_ms, SINCE_MS, is_late, ZONE)
        (folder / "rates.yaml").write_text(RATES, encoding="utf-8")
        period = ["--from", "2026-04-23T11:00Z", "--to", "2026-04-28T13:00Z", "--zone", ZONE.key, "--csv", "--json"]
        self._words = ["report", "--warehouse", str(self.warehouse), *period, "--rates", str(folder / "rates.yaml")]
        self.said, self.folder = self.report()

    def report(self, *more: str) -> tuple[Row, Path]:
        made = CliRunner().invoke(analyze, [*self._words, *more])
        assert made.exit_code == 0, made.output
        said = json.loads(made.stdout)
        return said, Path(said["page"]).parent

    def counters(self, folder: Path) -> dict[int, tuple[Any, ...]]:
        """Counters by their number: those of ``east`` are of no instance."""
        names = ("broker", "rule", "unit_user", "unit_client_id")
        return {
            each["counter"]: (
                *(each["kind"], each["cluster"], None if each["cluster"] == "east" else each["instance"]),
                *(each[name] for name in names),
            )
            for each in table(folder, "limits")
        }


@pytest.fixture(scope="module")
def reported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return Reported(spark, tmp_path_factory.mktemp("oracle"))


KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "talkers": ("cluster", "user", "client_id"),
    "rules": ("kind", "role", "rule", "exempt", "mode"),
    "addresses": ("cluster", "instance", "listener", "ip", "mode", "exempt", "rule"),
    "limits": ("counter",),
    "headroom": ("counter",),
    "headroom_days": ("counter", "date"),
    "trend": ("counter",),
    "episodes": ("cluster", "broker", "user", "client_id", "kind", "rule", "mode", "begin"),
    "muted_steps": ("cluster", "user", "client_id", "broker", "kind", "rule", "at_s"),
    "caused": ("counter", "user", "client_id", "is_rest", "victim_user", "victim_client_id"),
    "over_time": ("place", "at_s"),
    "loss": ("cluster", "instance", "boot", "hour"),
    "totals": (),
    "compared_clients": ("cluster", "user", "client_id"),
    "compared_limits": ("cluster", "broker", "kind", "rule", "unit_user", "unit_client_id"),
    "compared_quotas": ("kind", "rule"),
    "chargeback": ("SubAccountId", "ResourceId", "ChargePeriodStart", "SkuId"),
    "client_use": ("counter", "at_s"),
    "company": ("counter", "user", "client_id", "is_rest"),
}
OF_ANY: Final = {"limits": ("role", "instance"), "headroom": ("role", "instance", "window_ms"), "trend": ("instance",)}
"""Columns that are of one of several, or that ``limits`` has, too."""


def require_same(name: str, found: Iterable[Row], expected: Iterable[Row], but: Iterable[str] = ()) -> None:
    """Require the same rows, in every column."""
    keys = KEYS[name]

    def by_key(rows: Iterable[Row], without: Iterable[str]) -> dict[tuple[Any, ...], Row]:
        plain = [{column: _plain(value) for column, value in row.items() if column not in without} for row in rows]
        made = {tuple(row[key] for key in keys): row for row in plain}
        assert len(made) == len(plain), f"{name}: a key is there twice"
        return made

    one, other = (
        by_key(found, {*OF_ANY.get(name, ()), *but}),
        by_key(expected, {"roles", "instances"} if name == "limits" else ()),
    )
    assert one.keys() == other.keys(), name
    assert other, name
    for key, row in other.items():
        assert one[key].keys() == row.keys(), name
        differ = {
            column: (one[key][column], value) for column, value in row.items() if not _is(one[key][column], value)
        }
        assert not differ, (name, key)


def _is(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and found is not None:
        return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9)
    return bool(found == expected)


def table(folder: Path, name: str) -> list[Row]:
    """The rows of a table, without what the names of its directories say."""
    return [
        {column: value for column, value in row.items() if column not in ("report", "client")}
        for row in with_places(folder, name)
    ]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, list) else value


@pytest.mark.parametrize("name", [each for each in KEYS if each not in ("client_use", "company", "chargeback")])
def test_each_column_of_a_table_is_that_of_the_documents(reported: Reported, name: str) -> None:
    rows, counters = table(reported.folder, name), reported.counters(reported.folder)
    for row in rows:
        if "counter" in row and name != "caused":
            row["counter"] = counters[row["counter"]]
        if name == "episodes":
            row["counters"] = len(row["counters"])
    of: Callable[..., list[Row]] = getattr(reported.of, name)
    expected = of(reported.before) if name.startswith("compared_") else of()
    if name == "caused":  # of counters without a rule, too
        known = {each["counter"] for each in rows} - counters.keys()
        expected_without = [each for each in expected if each["counter"][4] is None]
        found_without = [each for each in rows if each["counter"] in known]
        assert len(found_without) == len(expected_without)
        rows = [{**each, "counter": counters[each["counter"]]} for each in rows if each["counter"] in counters]
        expected = [each for each in expected if each["counter"][4] is not None]
    require_same(name, rows, expected)


def test_one_of_several_is_one_of_them(reported: Reported) -> None:
    counters = reported.counters(reported.folder)
    of = {each["counter"]: each for each in reported.of.limits()}
    for each in table(reported.folder, "limits"):
        expected = of[counters[each["counter"]]]
        assert each["role"] in expected["roles"]
        assert each["instance"] in expected["instances"]


def test_bill_is_by_local_days_though_one_has_no_midnight(reported: Reported) -> None:
    expected = reported.of.chargeback(PER, "EUR", UNITS)
    require_same("chargeback", table(reported.folder, "chargeback"), expected)
    assert {each["ChargePeriodStart"].isoformat()[:16] for each in expected} >= {"2026-04-23T22:00"}


def test_rejected_documents_are_counted_by_reason(reported: Reported) -> None:
    found = [
        (each["fault"], each["documents"], each["topic"], each["line"]) for each in table(reported.folder, "rejected")
    ]
    first = len([each for each in reported.of.documents if each["seq"] % 7 != 3])
    line = first + len(range(0, first, 9)) + 1
    assert found == [("is not JSON", 2, None, line), ("is not a document: it has no v", 1, None, line + 1)]


def test_tables_as_json_and_csv_are_those_of_parquet(reported: Reported) -> None:
    for name, said in reported.said["tables"].items():
        rows = table(reported.folder, name)
        stored = json.loads(json.dumps(rows, default=lambda value: value.isoformat()))
        assert sorted(map(str, said)) == sorted(map(str, stored)), name
        with (reported.folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            written = [*csv.DictReader(file)]
        assert Counter(str([_cell(value) for value in each.values()]) for each in written) == Counter(
            str([_cell(value) for value in each.values()]) for each in rows
        ), name


def _cell(value: Any) -> str:
    """A value as text: numbers to nine digits, and without the quotes that keep names from being formulas."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    text = " ".join(value) if isinstance(value, list) and isinstance((*value, "")[0], str) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    try:
        return f"{float(text):.9g}"
    except ValueError:
        return text.replace("'", "")


def test_report_of_a_client_is_that_of_its_documents(reported: Reported) -> None:
    for user in ("alice", NAMES["erin"]):
        _, folder = reported.report("--client", f"user={user!a}")
        counters = reported.counters(folder)

        def is_own(row: Row, user: str = user) -> bool:
            return bool(row["user"] == user)

        for name in ("client_use", "company"):
            rows = [each | {"counter": counters.get(each["counter"])} for each in table(folder, name)]
            expected = getattr(reported.of, name)(is_own)
            if name == "client_use":
                rows = [each for each in rows if each["rule"] is not None]
                expected = [each for each in expected if each["rule"] is not None]
            require_same(name, rows, expected, ("role", "instance"))
