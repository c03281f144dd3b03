"""What is old goes, what is new stays, and whoever had begun to read goes on."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from analysis.table import warehouse as tables
from tests.analysis.records import BEGIN, document, in_order, row, rows_of, stored
from tests.analysis.upkeep.conftest import DOCUMENTS, GRACE_S, Filled

pytestmark = pytest.mark.spark

DAY_S = 86_400
HOUR_S = 3600
OLD = [document(100 + day, [row("alice")], second=-day * DAY_S) for day in (1, 3)]


@pytest.fixture
def years(busy: Filled) -> Filled:
    """The three hours of ``busy``, and an hour each of one and of three days before."""
    busy.publish(20, OLD)
    return busy


def hours(filled: Filled) -> list[str]:
    return sorted({file.partition("/batch=")[0] for file in filled.files()})


def test_what_is_older_goes_and_is_counted_from_the_newest_hour(years: Filled) -> None:
    before = tables.usage(years.spark, years.place)
    found = years.expire(keep_s=2 * DAY_S)
    assert (found.hours, found.before) == (1, BEGIN + timedelta(hours=3, days=-2))
    assert hours(years)[0] == "date=2026-02-28/hour=12"
    assert years.rows() == in_order(stored([OLD[0], *DOCUMENTS]))
    assert rows_of(before) == in_order(stored([*OLD, *DOCUMENTS]))
    years.now_s += GRACE_S + 1
    assert years.expire(keep_s=2 * DAY_S).removed_bytes == found.size_bytes > 0
    assert years.usage.names(".replaced/*") == []


def test_hours_of_a_day_go_one_by_one(years: Filled) -> None:
    assert years.expire(keep_s=2 * HOUR_S).hours == 3
    assert hours(years) == ["date=2026-03-01/hour=13", "date=2026-03-01/hour=14"]


def test_the_newest_hour_stays(years: Filled) -> None:
    assert years.expire(keep_s=0).hours == 4
    assert hours(years) == ["date=2026-03-01/hour=14"]
    assert years.expire(keep_s=0).hours == 0


def test_records_of_the_future_make_nothing_old(years: Filled) -> None:
    years.publish(21, [document(999, [row("zoe")], second=70 * 365 * DAY_S)])
    assert years.expire(keep_s=10 * DAY_S).hours == 0
    years.expire(keep_s=0)
    assert hours(years) == ["date=2026-03-01/hour=14", "date=2096-02-12/hour=12"]


def test_a_clock_that_is_fast_makes_nothing_old(years: Filled) -> None:
    years.now_s += 10_000 * DAY_S
    assert years.expire(keep_s=10 * DAY_S).hours == 0


def test_a_dry_run_removes_nothing(years: Filled) -> None:
    years.warehouse.write("report=20260101T000000Z-20260102T000000Z/report.html", "old")
    files = years.files()
    found = years.expire(keep_s=0, dry_run=True)
    assert (found.hours, found.reports) == (4, 1)
    assert years.files() == files
    assert years.warehouse.exists("report=20260101T000000Z-20260102T000000Z")
    assert any(line.startswith("date=2026-02-26: 1 hour, ") for line in years.told)


def test_reports_and_rejected_documents_go_by_their_age(years: Filled) -> None:
    for name in ("report=20260101T000000Z-20260102T000000Z", "report=20260228T000000Z-20260301T130000Z"):
        years.warehouse.write(f"{name}/report.html", name)
    for name, at in (("b-0", BEGIN - timedelta(days=30)), ("b-1", BEGIN)):
        years.warehouse.write(f"rejected/batch={name}/part.parquet", name)
        os.utime(Path(years.place, "rejected", f"batch={name}", "part.parquet"), (at.timestamp(), at.timestamp()))
    found = years.expire(keep_s=10 * DAY_S)
    assert (found.hours, found.rejected, found.reports) == (0, 1, 1)
    assert years.warehouse.names("report=*") == ["report=20260228T000000Z-20260301T130000Z"]
    assert years.warehouse.names("rejected/*") == ["batch=b-1"]


def test_reports_beside_the_warehouse_go_too_and_pages_of_clients_with_their_names(years: Filled) -> None:
    old, young = "report=20260101T000000Z-20260102T000000Z", "report=20260228T000000Z-20260301T130000Z"
    for name in (old, young, f"client=user-alice-1/{old}", f"client=user-bob-2/{old}", f"client=user-bob-2/{young}"):
        years.reports.write(f"{name}/report.html", name)
    years.reports.write("notes.txt", "somebody's own")
    assert years.expire(keep_s=10 * DAY_S, dry_run=True).reports == 3
    assert years.reports.exists(f"client=user-alice-1/{old}")
    assert years.expire(keep_s=10 * DAY_S).reports == 3
    assert years.reports.names("*") == ["client=user-bob-2", "notes.txt", young]
    assert years.reports.names("client=user-bob-2/*") == [young]


def test_what_was_aside_of_a_killed_compaction_is_put_right_first(years: Filled) -> None:
    """An expiry that follows it knows whose rows are whose."""
    years.compact()
    assert years.expire(keep_s=2 * DAY_S, grace_s=0).hours == 1
    assert years.rows() == in_order(stored([OLD[0], *DOCUMENTS]))
    assert years.usage.names(".replaced/*") == []
