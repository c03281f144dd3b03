"""Who was busy on a client's brokers while it was delayed there, by ``analysis.metrics.neighbours``."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.client.asked import Asked
from analysis.client.findings import Busy
from analysis.metrics import neighbours
from analysis.metrics.neighbours import CLIENT
from analysis.metrics.period import Period
from analysis.metrics.sums import total
from analysis.table.arrays import summed
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

MOST: Final = 12
_MOVED: Final = ("bytes_in", "bytes_out")
_SCHEMA: Final = pa.schema([*(FILE.field(name) for name in CLIENT), *((name, pa.int64()) for name in _MOVED)])


def busy(usage: UsageRows, muted: DataFrame, asked: Asked, period: Period) -> list[Busy]:
    """Return who peaked while the client was delayed, on brokers where it was; ``muted`` is the client's alone."""
    places = muted.where(F.col("broker") >= 0).groupBy("cluster", "broker").agg(total("muted_ms").alias("muted_ms"))
    delays = {(row["cluster"], row["broker"]): row["muted_ms"] for row in places.toArrow().to_pylist()}
    if not delays:
        return []
    there = usage.only(broker=sorted({broker for _, broker in delays}))
    moved = there.scan((*CLIENT, *_MOVED), _moved, _SCHEMA)
    candidates = neighbours.candidates(moved).cache()
    sums = neighbours.moments(there, candidates).cache()
    try:
        delayed = neighbours.victims(muted, sums, candidates, period)
        of_each = delayed.groupBy(*CLIENT).agg(total("delay_ms").alias("delay_ms"))
        scores = neighbours.neighbours(sums, candidates, period).select(*CLIENT, "peaks", "expected", "share_of_bytes")
        rows: list[dict[str, Any]] = of_each.join(scores, [*CLIENT]).toArrow().to_pylist()
    finally:
        sums.unpersist()
        candidates.unpersist()
    found = [_busy(row, delays) for row in rows if not _is_same(row, asked)]
    return sorted(found, key=lambda each: (each.expected - each.share, -each.delay_ms, each.user))[:MOST]


def _busy(row: dict[str, Any], delays: dict[tuple[str, int], int]) -> Busy:
    share = row["delay_ms"] / delays[row["cluster"], row["broker"]]
    names = ("user", "client_id", "broker", "delay_ms", "expected", "peaks", "share_of_bytes")
    return Busy(**{name: row[name] for name in names}, share=share)


def _is_same(row: dict[str, Any], asked: Asked) -> bool:
    return all((row[column] or "") == name for column, name in asked.names.items())


def _moved(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return summed(tables, CLIENT, dict.fromkeys(_MOVED, "sum"))
