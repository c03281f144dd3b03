"""Days that are summed up: a report says the same of them as of their rows, and does not read these."""

import json
import random
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from analysis.cli import analyze
from analysis.metrics import keepings
from analysis.metrics.clients import CLIENT, clients
from analysis.metrics.period import Period
from analysis.metrics.rates import Rates
from analysis.report import job, tables
from analysis.report.comparing import NAMES, Against
from analysis.report.job import ReportRequest
from analysis.spark.folder import Folder
from analysis.spark.session import light
from analysis.table import at_hand
from analysis.table import warehouse as stored
from analysis.table.reading import Keeping
from analysis.table.scan import UsageRows
from analysis.table.summaries import MADE, SUMMARIES, day_of
from analysis.upkeep.summing import SummedUp, SummingUp, SumUpRequest
from tests.analysis.records import BEGIN, Document, document, row
from tests.analysis.report.tables import differing
from tests.analysis.upkeep.conftest import GRACE_S, Filled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MIDNIGHT = BEGIN.replace(hour=0)
DAY_S = 86_400
DAYS = 4
DATES = DAYS + 1
"""From noon to noon, and a minute more."""
NOW = MIDNIGHT + timedelta(days=DAYS + 2)


def recorded(seed: int = 3) -> Iterator[Document]:
    """Some minutes around noon and around each midnight, with all that does not stop at one.

    A burst that a window has half of; a gap of hours; a mute that goes on; an interval, and a limit, that change; caps;
    addresses; documents that were dropped.
    """
    chance = random.Random(seed)
    for instance in ("edge-1", "edge-2"):
        seq = 0
        for day in range(DAYS):
            for begins_s in (day * DAY_S, day * DAY_S + DAY_S // 2 - 60):
                interval_s = 1 if day < 2 else 5
                seq += 3  # what was between, for half a day, did not arrive
                for second in range(0, 120, interval_s):
                    seq += 1 if chance.random() < 0.95 else chance.randrange(2, 4)
                    yield document(
                        seq,
                        list(_rows(chance, day, second, interval_s)),
                        second=begins_s + second,
                        interval_ms=1000 * interval_s,
                        instance=instance,
                        samples=11 if day < 3 else 31,
                        dropped_documents=seq // 100,
                    )


def _rows(chance: random.Random, day: int, second: int, interval_s: int) -> Iterator[dict[str, Any]]:
    loud = 50 <= second < 70
    for user, rule, limit in (
        ("alice", "user=alice", 1000.0 * (1 + day // 2)),
        ("bob", "user=<default>", 500.0),
        ("dave", None, None),
    ):
        if chance.random() < 0.7:
            bytes_ = chance.randrange(2000) * interval_s * (5 if loud else 1)
            muted_ms = 400 * interval_s if loud and rule else 0
            caps = {"produce_caps": "client-id=app", "produce_cap_limits": "4000.0"} if day == 1 else {}
            yield row(
                user,
                chance.choice(("app", "web")),
                bytes_in=bytes_,
                requests=3,
                request_time_ms=chance.randrange(9),
                produce_bytes=bytes_,
                produce_rule=rule,
                produce_limit=limit,
                produce_throttled=muted_ms // 100,
                produce_throttle_ms=muted_ms,
                produce_muted_ms=muted_ms,
                **caps,
            )
    yield row(None, None, broker=-1, ip="10.0.0.1", connection_attempts=3, connection_rule="ip=<default>")


@pytest.fixture(scope="module")
def stored_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Batches of a quarter of a day, in their order but for one that came late; and the same summed up."""
    folder = tmp_path_factory.mktemp("days")
    filled = Filled(light(spark), str(folder / "rows"))
    batches: dict[int, list[Document]] = {}
    for each in recorded():
        quarter = (each["time_ms"] // 1000 - int(MIDNIGHT.timestamp())) // (DAY_S // 4)
        batches.setdefault(quarter, []).append(each)
    for number, quarter in enumerate(sorted(batches, key=lambda quarter: 12.5 if quarter == 7 else quarter)):
        filled.publish_hours(number, batches[quarter])
    shutil.copytree(filled.place, folder / "sums")
    of_sums = Filled(filled.spark, str(folder / "sums"))
    of_sums.now_s = NOW.timestamp()
    assert sum_up(of_sums).days == DATES
    return folder / "rows", folder / "sums"


@pytest.fixture
def days(stored_days: tuple[Path, Path], spark: SparkSession, warehouse: str) -> Filled:
    """Days of which nothing is summed up."""
    return _copied(stored_days[0], spark, warehouse)


@pytest.fixture
def sums(stored_days: tuple[Path, Path], spark: SparkSession, warehouse: str) -> Filled:
    """Days that are summed up, all of them."""
    return _copied(stored_days[1], spark, warehouse)


def _copied(place: Path, spark: SparkSession, warehouse: str) -> Filled:
    shutil.copytree(place, warehouse)
    filled = Filled(light(spark), warehouse)
    filled.now_s = NOW.timestamp()
    return filled


def sum_up(filled: Filled, *, older_s: int = 7200, dry_run: bool = False) -> SummedUp:
    request = SumUpRequest(older_s, GRACE_S, dry_run)
    return SummingUp(filled.spark, filled.place, request, filled.told.append, lambda: filled.now_s).run()


def forget(filled: Filled, day: str) -> None:
    """Have a day not summed up."""
    shutil.rmtree(Path(filled.place, SUMMARIES, f"date={day}"))


def made(filled: Filled) -> list[str]:
    root = Path(filled.place, SUMMARIES)
    return sorted(str(each.parent.relative_to(root)) for each in root.glob(f"*/*/{MADE}"))


@contextmanager
def by_workers() -> Iterator[None]:
    """Have what is little read like what is much."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at_hand, "FEW_FILES", 0)
        yield


def usage(filled: Filled, begin: datetime | None, end: datetime | None, *, summed_up: bool = True) -> UsageRows:
    with by_workers():
        return stored.usage(filled.spark, filled.place, begin, end, with_summaries=summed_up)


def report(filled: Filled, out: Path, begin: datetime | None, end: datetime | None, *, summed_up: bool) -> Path:
    """Make a report, against the time before its period: of sums, or of rows, in the driver."""

    def found(since: datetime | None, until: datetime | None) -> UsageRows:
        return usage(filled, since, until) if summed_up else stored.usage(filled.spark, filled.place, since, until)

    request = ReportRequest(begin, end, str(out), Rates(), None, Against(found))
    return Path(job.run(found(begin, end), request).html).parent


def test_a_report_says_the_same_of_days_that_are_summed_up(sums: Filled, tmp_path: Path) -> None:
    """Two of them, one made in the driver and one by workers; and rows of some hours before and after."""
    begin, end = (MIDNIGHT + timedelta(hours=hours) for hours in (30, 110))
    forget(sums, "2026-03-03")
    with by_workers():
        assert sum_up(sums).days == 1
    assert len(usage(sums, begin, end).kept_days) == 2
    of_rows, of_sums = (
        report(sums, tmp_path / name, begin, end, summed_up=name == "sums") for name in ("rows", "sums")
    )
    assert differing(sums.spark, of_sums, of_rows, [*tables.NAMES, *NAMES]) == []
    pages = [(each / "report.html").read_text(encoding="utf-8").replace(str(each), "") for each in (of_rows, of_sums)]
    assert pages[0] == pages[1]
    csv = [(each / "chargeback.csv").read_text(encoding="utf-8") for each in (of_rows, of_sums)]
    assert csv[0] == csv[1]


def test_rows_of_days_that_are_summed_up_are_not_read(sums: Filled) -> None:
    begin, end = MIDNIGHT + timedelta(days=1), MIDNIGHT + timedelta(days=3)
    expected = _sums(usage(sums, begin, end, summed_up=False))
    for file in Path(sums.place).glob("usage/date=2026-03-02/*/*/*.parquet"):
        file.write_bytes(b"x" * file.stat().st_size)
    found = usage(sums, begin, end)
    assert found.kept_days == tuple(map(day_of, ("2026-03-02", "2026-03-03")))
    assert _sums(found) == expected
    with pytest.raises(PySparkException):
        _sums(usage(sums, begin, end, summed_up=False))


def _sums(found: UsageRows) -> list[Row]:
    return clients(found, 1000).orderBy("date", *CLIENT).collect()


def test_a_day_that_changes_is_read_from_its_rows_until_it_is_summed_up_again(sums: Filled) -> None:
    before = made(sums)
    noon = DAY_S + 3600
    sums.publish(99, [document(900, [row("late", bytes_in=5)], second=noon, boot="boot-2")])
    whole = usage(sums, MIDNIGHT, None)
    assert day_of("2026-03-02") not in whole.kept_days
    assert day_of("2026-03-03") in whole.kept_days
    assert {each.user for each in clients(whole, 1000).select("user").distinct().collect()} >= {"late", "alice"}
    found = sum_up(sums)
    assert (found.days, found.there, found.removed) == (1, DATES - 1, 0), "a report may still read what there was"
    assert set(before) < set(made(sums))
    sums.now_s = time.time() + 2 * GRACE_S
    assert sum_up(sums).removed == 1
    assert len(made(sums)) == DATES
    assert {each.partition("/")[0] for each in made(sums)} == {each.partition("/")[0] for each in before}


def test_days_that_are_compacted_are_summed_up_again(sums: Filled) -> None:
    sums.publish(100, [document(901, [row("zoe")], second=10 * DAY_S)])
    sums.now_s += 10 * DAY_S
    sums.compact()
    found = sum_up(sums)
    again = {hour.partition("/")[0] for hour in sums.files() if "compacted" in hour}
    assert found.days == len(again) + 1
    assert found.there == DATES - len(again) > 0


@pytest.mark.parametrize("by", ["a table that is not made", "the mark that is not written"])
def test_what_was_killed_half_way_counts_for_nothing(sums: Filled, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    forget(sums, "2026-03-03")
    write = Folder.write

    def killed(self: Folder, name: str, content: str | bytes) -> None:
        if name.endswith(MADE) or (by.startswith("a table") and "/rules/" in name):
            raise KeyboardInterrupt
        write(self, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            sum_up(sums)
    assert len(usage(sums, MIDNIGHT, None).kept_days) == DATES - 1
    assert (sum_up(sums).days, sum_up(sums).days) == (1, 0)
    assert len(usage(sums, MIDNIGHT, None).kept_days) == DATES


def test_a_day_that_an_ingestion_changes_meanwhile_is_left_to_the_next_run(
    sums: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(sums, "2026-03-02")
    of_day = keepings.of_day

    def changed(found: UsageRows, period: Period) -> list[Keeping]:
        sums.publish(101, [document(902, [row("late")], second=DAY_S, boot="boot-2")])
        return of_day(found, period)

    with monkeypatch.context() as patched:
        patched.setattr(keepings, "of_day", changed)
        found = sum_up(sums)
    assert (found.changed, found.days) == (["2026-03-02"], 0)
    assert sum_up(sums).days == 1


def test_only_days_that_are_over(days: Filled) -> None:
    days.now_s = (MIDNIGHT + timedelta(days=2, hours=1)).timestamp()
    assert sum_up(days, dry_run=True).days == 1
    assert sum_up(days, older_s=3600, dry_run=True).days == 2
    assert days.told == [f"2026-03-0{day} would be summed up" for day in (1, 1, 2)]
    assert made(days) == []


def test_sums_of_days_that_expire_go_with_them(sums: Filled) -> None:
    found = sums.expire(keep_s=2 * DAY_S)
    assert found.summaries == 2
    assert [each.partition("/")[0] for each in made(sums)] == [f"date=2026-03-0{day}" for day in (3, 4, 5)]


def test_the_command(sums: Filled) -> None:
    forget(sums, "2026-03-05")
    ran = CliRunner().invoke(analyze, ["summarize", "--warehouse", sums.place])
    assert ran.exit_code == 0, ran.output
    assert re.fullmatch(rf"{sums.place}: 1 day, [\d,]+ rows: [\d.]+ MB of sums; 4 were there\n", ran.stdout)
    assert "1 of 1, 2026-03-05: " in ran.stderr
    sums.usage.write(".upkeep-lock", json.dumps({"what": "compact", "host": "elsewhere", "renewed_s": time.time()}))
    ran = CliRunner().invoke(analyze, ["summarize", "--warehouse", sums.place])
    assert ran.exit_code == 2
    assert "error: compact (process None on elsewhere) is at work on this warehouse" in ran.stderr
