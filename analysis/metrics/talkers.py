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
from analysis.table import hashes
from analysis.table.arrays import Ints, added, ints, summed, times_ms, with_columns
from analysis.table.reading import Keeping, adding
from analysis.table.scan import OfDays, UsageRows
from analysis.table.schema import FILE

CLIENT: Final = ("cluster", "user", "client_id")
"""Of refused connections the names are null: nobody has said yet who it is."""
OTHERS: Final = -1
KEPT: Final = "hours"
_MOVED: Final = ("bytes_in", "bytes_out")
_APART: Final = ("place", "step_s")
_SCHEMA: Final = pa.schema([(name, pa.int64()) for name in (*_APART, *_MOVED)])
_HOUR_S: Final = 3600
_OF_HOUR: Final = (*CLIENT, "hour_s")
_HOURS: Final = pa.schema(
    [*(FILE.field(name) for name in CLIENT), *((name, pa.int64()) for name in ("hour_s", *_MOVED))]
)
_HOW: Final = dict.fromkeys(_MOVED, "sum")


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
    hours = OfDays(KEPT, steps.of_hours) if are_of_hours(step_s) else None
    parts = usage.scan(("time", *CLIENT, *_MOVED), steps, _SCHEMA, hours)
    sums = parts.groupBy(*_APART).agg(*(total(name).alias(name) for name in _MOVED))
    return sums.join(F.broadcast(usage.spark.createDataFrame(most)), "place", "left")


def are_of_hours(step_s: int) -> bool:
    """Whether ``over_time`` can make such steps of what is kept."""
    return step_s % _HOUR_S == 0


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, ("time", *CLIENT, *_MOVED), _hours, _HOURS, adding(_OF_HOUR, _HOW), _of_client)


def _hours(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return (added(_of_hour(table), _OF_HOUR, _HOW) for table in tables)


def _of_client(hours: pa.Table) -> Ints:
    return hashes.of_columns(hours, CLIENT)


def _of_hour(table: pa.Table) -> pa.Table:
    return with_columns(table.drop_columns("time"), {"hour_s": times_ms(table) // 1000 // _HOUR_S * _HOUR_S})


@dataclass(frozen=True, slots=True)
class _Steps:
    most: Few
    step_s: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return summed((self._columns(table, times_ms(table) // 1000) for table in tables), _APART, _HOW)

    def of_hours(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return summed((self._columns(table, ints(table, "hour_s")) for table in tables), _APART, _HOW)

    def _columns(self, table: pa.Table, time_s: Ints) -> pa.Table:
        step_s = time_s // self.step_s * self.step_s
        columns = {"place": self.most.of_rows(table), "step_s": step_s, **{name: table[name] for name in _MOVED}}
        return pa.table(columns)
