"""Days that are summed up: a report says the same of them as of their rows, and does not read these."""

import json
import os
import re
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.metrics import keepings
from analysis.metrics.period import Period
from analysis.spark.folder import Folder
from analysis.table.reading import Keeping
from analysis.table.scan import UsageRows
from analysis.table.summaries import MADE, SUMMARIES, day_of
from tests.analysis.records import Document, document, row
from tests.analysis.upkeep.conftest import GRACE_S, Filled
from tests.analysis.upkeep.days import (
    DATES,
    DAY_S,
    MIDNIGHT,
    NOW,
    assert_alike,
    by_workers,
    of_clients,
    recorded,
    report,
    sum_up,
    usage,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def stored_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Batches of a quarter of a day, in their order but for one that came late; and the same summed up."""
    folder = tmp_path_factory.mktemp("days")
    filled = Filled(spark, str(folder / "rows"))
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
    filled = Filled(spark, warehouse)
    filled.now_s = NOW.timestamp()
    return filled


def forget(filled: Filled, day: str) -> None:
    """Have a day not summed up."""
    shutil.rmtree(Path(filled.place, SUMMARIES, f"date={day}"))


def made(filled: Filled) -> list[str]:
    root = Path(filled.place, SUMMARIES)
    return sorted(str(each.parent.relative_to(root)) for each in root.glob(f"*/*/{MADE}"))


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
    assert_alike(sums.spark, of_rows, of_sums)


def test_rows_of_days_that_are_summed_up_are_not_read(sums: Filled) -> None:
    begin, end = MIDNIGHT + timedelta(days=1), MIDNIGHT + timedelta(days=3)
    expected = of_clients(usage(sums, begin, end, summed_up=False))
    for file in Path(sums.place).glob("usage/date=2026-03-02/*/*/*.parquet"):
        file.write_bytes(b"x" * file.stat().st_size)
    found = usage(sums, begin, end)
    assert found.kept_days == tuple(map(day_of, ("2026-03-02", "2026-03-03")))
    assert of_clients(found) == expected
    with pytest.raises(PySparkException):
        of_clients(usage(sums, begin, end, summed_up=False))


def test_a_day_that_changes_is_read_from_its_rows_until_it_is_summed_up_again(sums: Filled) -> None:
    before = made(sums)
    noon = DAY_S + 3600
    sums.publish(99, [document(900, [row("late", bytes_in=5)], second=noon, boot="boot-2")])
    whole = usage(sums, MIDNIGHT, None)
    assert day_of("2026-03-02") not in whole.kept_days
    assert day_of("2026-03-03") in whole.kept_days
    assert {each.user for each in of_clients(whole)} >= {"late", "alice"}
    found = sum_up(sums)
    assert (found.days, found.there, found.removed) == (1, DATES - 1, 0), "a report may still read what there was"
    assert set(before) < set(made(sums))
    sums.now_s = time.time() + 2 * GRACE_S
    assert sum_up(sums).removed == 1
    assert len(made(sums)) == DATES
    assert {each.partition("/")[0] for each in made(sums)} == {each.partition("/")[0] for each in before}


def test_sums_that_a_report_may_be_reading_stay(sums: Filled) -> None:
    """However old they are: it had begun before their day was summed up again."""
    for each in Path(sums.place).rglob(MADE):
        os.utime(each, (1, 1))
    sums.publish(99, [document(900, [row("late")], second=DAY_S, boot="boot-2")])
    sums.now_s = time.time()
    assert (sum_up(sums).removed, len(made(sums))) == (0, DATES + 1)
    sums.now_s += 2 * GRACE_S
    assert (sum_up(sums).removed, len(made(sums))) == (1, DATES)


def test_what_never_counted_goes_when_its_day_is_another_one(sums: Filled) -> None:
    """Left by a kill, where renaming is copying."""
    left = Path(sums.place, SUMMARIES, "date=2026-03-02", "0123456789abcdef", "clients")
    left.mkdir(parents=True)
    (left / "part-00000.parquet").touch()
    assert sum_up(sums).removed == 0
    assert not left.parent.exists()


def test_a_removal_that_is_cut_off_leaves_no_part_of_sums(sums: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory goes file by file, in any order; and then the day is as it was, as its last batch is gone for a
    moment while it is published again.
    """
    (before,) = (each for each in made(sums) if each.startswith("date=2026-03-02"))
    sums.publish(99, [document(900, [row("late")], second=DAY_S, boot="boot-2")])
    sum_up(sums)
    sums.now_s = time.time() + 2 * GRACE_S
    remove = Folder.remove

    def cut_off(folder: Folder, name: str) -> None:
        if name.endswith(before):
            remove(folder, f"{name}/clients")
            raise KeyboardInterrupt
        remove(folder, name)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "remove", cut_off)
        with pytest.raises(KeyboardInterrupt):
            sum_up(sums)
    (batch,) = Path(sums.place, "usage").glob("date=2026-03-02/hour=*/batch=*-99")
    shutil.rmtree(batch)
    assert day_of("2026-03-02") not in usage(sums, MIDNIGHT, None).kept_days


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
    sums.usage.write(".upkeep-lock-9", json.dumps({"what": "compact", "host": "elsewhere", "renewed_s": time.time()}))
    ran = CliRunner().invoke(analyze, ["summarize", "--warehouse", sums.place])
    assert ran.exit_code == 2
    assert "error: compact (process None on elsewhere) is at work on this warehouse" in ran.stderr
