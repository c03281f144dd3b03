"""One reading of rows: what tasks make of them is the same, wherever they are read, and by however many."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.metrics import clients, comparison, period
from analysis.metrics.period import Period
from analysis.report import tables
from analysis.table import at_hand, reading
from analysis.table import warehouse as stored
from analysis.table.parts import Parts
from analysis.table.reading import Making
from analysis.table.scan import UsageRows
from tests.analysis.records import BEGIN, Document, document, row
from tests.analysis.upkeep.conftest import Filled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def makings(usage: UsageRows, found: Period) -> list[Making]:
    return [*tables.makings(usage, found, 11_000), comparison.making()]


BEGINS, ENDS = (BEGIN + timedelta(hours=1, minutes=minutes) for minutes in (0, 3))


@pytest.fixture
def filled(spark: SparkSession, warehouse: str) -> Filled:
    """Minutes around a full hour: a gap, a cap, and a burst of which a window before the hour has half."""
    made = Filled(spark, warehouse)
    for batch in range(3):
        made.publish_hours(batch, map(interval, range(3400 + 200 * batch, 3600 + 200 * batch, 2)))
    return made


def interval(second: int) -> Document:
    loud = 3590 <= second < 3620
    muted: dict[str, Any] = (
        {"produce_muted_ms": 700, "produce_throttled": 2, "produce_throttle_ms": 900} if loud else {}
    )
    bytes_ = second * (9 if loud else 1)
    rows = [
        row(produce_bytes=bytes_, produce_rule="user=alice", produce_limit=5000.0, **muted),
        row("bob", produce_bytes=bytes_, produce_caps="client-id=app", produce_cap_limits="9000.0"),
        row(None, None, broker=-1, ip="10.0.0.1", connection_attempts=3, connection_rule="ip=<default>"),
    ]
    return document(second // 2 + (3 if second > 3700 else 0), rows, second=second, interval_ms=2000)


def in_order(made: dict[str, Parts]) -> dict[str, list[str]]:
    return {name: sorted(map(str, table.whole().to_pylist())) for name, table in made.items()}


def test_rows_at_hand_and_rows_that_workers_read_make_the_same(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    here = stored.usage(filled.spark, filled.place, BEGINS, ENDS)
    assert here.at_hand is not None
    found = period.look(here)
    assert found is not None
    expected = in_order(reading.tables(here, makings(here, found), found.rows, found.longest_window_ms))
    assert all(expected.values())

    monkeypatch.setattr(at_hand, "FEW_FILES", 0)
    usage = stored.usage(filled.spark, filled.place, BEGINS, ENDS)
    for tasks in (1, 3):
        monkeypatch.setattr(reading, "tasks_for", lambda *_, tasks=tasks: tasks)
        made = reading.tables(usage, makings(usage, found), found.rows, found.longest_window_ms)
        assert in_order(made) == expected


def test_what_is_made_does_not_need_the_rows_again(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_hand, "FEW_FILES", 0)
    usage = stored.usage(filled.spark, filled.place, BEGINS, ENDS)
    found = period.look(usage)
    assert found is not None
    made = reading.tables(usage, makings(usage, found), found.rows, found.longest_window_ms)
    for file in Path(filled.place).glob("usage/*/*/*/*.parquet"):
        file.write_bytes(b"x" * file.stat().st_size)
    assert len(made["clients"]) > 0
    assert comparison.unrecorded_s(made[comparison.KEPT].whole(), BEGINS, ENDS) == 0
    with pytest.raises(PySparkException):
        clients.clients(usage, found.rows)
