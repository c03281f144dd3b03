"""One reading of rows: what is kept of them is the same as who reads them by himself finds."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.metrics import addresses, caps, clients, comparison, headroom, keepings, loss, period, rules
from analysis.metrics.period import Period
from analysis.table import at_hand
from analysis.table import warehouse as stored
from analysis.table.parts import Parts
from analysis.table.reading import read_once
from analysis.table.scan import UsageRows
from tests.analysis.records import BEGIN, Document, document, muted_of, row
from tests.analysis.upkeep.conftest import Filled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TABLES: Final[dict[str, Callable[[UsageRows, Period], Parts | pa.Table]]] = {
    "loss": loss.loss,
    "clients": lambda usage, found: clients.clients(usage, found.rows),
    "capped": lambda usage, found: caps.capped(usage, found.capped),
    "addresses": lambda usage, _: addresses.addresses(usage),
    "rules": lambda usage, found: rules.rules(usage, None, found.capped),
    "muted": lambda usage, found: muted_of(usage, found.capped),
    "headroom": headroom.headroom,
}


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


def in_order(table: Parts | pa.Table) -> list[str]:
    return sorted(map(str, (table.whole() if isinstance(table, Parts) else table).to_pylist()))


def test_what_is_kept_is_what_rows_say_and_nobody_reads_them_again(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = stored.usage(filled.spark, filled.place, BEGINS, ENDS)
    assert here.at_hand is not None
    found = period.look(here)
    assert found is not None
    expected = {name: in_order(table(here, found)) for name, table in TABLES.items()}
    gap_s = comparison.unrecorded_s(here, BEGINS, ENDS)
    assert all(expected.values())

    monkeypatch.setattr(at_hand, "FEW_FILES", 0)
    usage = stored.usage(filled.spark, filled.place, BEGINS, ENDS)
    kept = keepings.of_report(usage, found, is_compared=True)
    with read_once(usage, kept, found.rows, found.longest_window_ms) as known:
        for file in Path(filled.place).glob("usage/*/*/*/*.parquet"):
            file.write_bytes(b"x" * file.stat().st_size)
        assert {name: in_order(table(known, found)) for name, table in TABLES.items()} == expected
        assert comparison.unrecorded_s(known, BEGINS, ENDS) == gap_s
        with pytest.raises(KeyError, match="period"):
            period.look(known)
        with pytest.raises(PySparkException):
            in_order(clients.clients(usage, found.rows))


def test_rows_at_hand_are_read_where_they_are(filled: Filled) -> None:
    usage = stored.usage(filled.spark, filled.place)
    with read_once(usage, [], 1, 0) as known:
        assert known is usage
