"""Who moves how much: bytes in and out, and requests, of each client over all brokers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.clients import SUMS
from analysis.metrics.few import Few
from analysis.metrics.sums import total
from analysis.table.arrays import summed, times_ms
from analysis.table.scan import UsageRows

CLIENT: Final = ("cluster", "user", "client_id")
"""Of refused connections the names are null: nobody has said yet who it is."""
OTHERS: Final = -1
_MOVED: Final = ("bytes_in", "bytes_out")
_APART: Final = ("place", "step_s")
_SCHEMA: Final = pa.schema([(name, pa.int64()) for name in (*_APART, *_MOVED)])


def talkers(clients: DataFrame) -> DataFrame:
    """Return CLIENT and the sums of ``clients``: every byte of the rows is in one of them."""
    return clients.groupBy(*CLIENT).agg(*(total(name).alias(name) for name in SUMS))


def top(talkers: DataFrame, count: int) -> DataFrame:
    """Return those that move most, the first one first."""
    moved = F.col("bytes_in") + F.col("bytes_out")
    named = talkers.where(F.col("user").isNotNull() & (moved > 0))
    return named.orderBy(moved.desc(), *CLIENT).limit(count)


def over_time(usage: UsageRows, found: DataFrame, count: int, step_s: int) -> DataFrame:
    """Return ``bytes_in`` and ``bytes_out`` of the top ``talkers`` in each step of time, and of all others as one.

    ``place`` counts from 0, the one that moves most; OTHERS have no CLIENT. ``step_s`` is when the step begins, in Unix
    time.
    """
    most = top(found, count).select(*CLIENT).toArrow()
    most = most.append_column("place", pa.array(range(most.num_rows), pa.int64()))
    steps = _Steps(Few.of(most, CLIENT, "place"), step_s)
    parts = usage.scan(("time", *CLIENT, *_MOVED), steps, _SCHEMA)
    summed = parts.groupBy(*_APART).agg(*(total(name).alias(name) for name in _MOVED))
    return summed.join(F.broadcast(usage.spark.createDataFrame(most)), "place", "left")


@dataclass(frozen=True, slots=True)
class _Steps:
    most: Few
    step_s: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return summed(map(self._columns, tables), _APART, dict.fromkeys(_MOVED, "sum"))

    def _columns(self, table: pa.Table) -> pa.Table:
        step_s = times_ms(table) // 1000 // self.step_s * self.step_s
        columns = {"place": self.most.of_rows(table), "step_s": step_s, **{name: table[name] for name in _MOVED}}
        return pa.table(columns)
