"""Who moves how much: bytes in and out, and requests, of each client over all brokers."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.clients import SUMS
from analysis.metrics.counters import KINDS
from analysis.metrics.few import Few
from analysis.table import hashes
from analysis.table.arrays import Ints, added, ints, summed, times_ms, together, with_columns
from analysis.table.exchange import collected
from analysis.table.parts import Parts
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
_SUMMED: Final = pa.schema([*(FILE.field(name) for name in CLIENT), *((name, pa.int64()) for name in SUMS)])


def talkers(clients: Parts) -> pa.Table:
    """Return CLIENT and the sums of ``clients``: every byte of the rows is in one of them."""
    return together(summed(clients.tables(_SUMMED.names), CLIENT, dict.fromkeys(SUMS, "sum")), _SUMMED)


def muted_ms(talkers: pa.Table) -> Ints:
    """Return for how long each was muted, by all kinds."""
    return reduce(add, (ints(talkers, f"{kind}_muted_ms") for kind in KINDS))


def top(talkers: pa.Table, count: int) -> pa.Table:
    """Return those that move most, the first one first."""
    found = with_columns(talkers, {"moved": pc.add(talkers["bytes_in"], talkers["bytes_out"])})
    some = found.filter(pc.and_(found["user"].is_valid(), pc.greater(found["moved"], 0)))
    order = [("moved", "descending"), *((name, "ascending") for name in CLIENT)]
    return some.sort_by(order).slice(0, count).drop_columns("moved")


def over_time(usage: UsageRows, found: pa.Table, count: int, step_s: int) -> pa.Table:
    """Return ``bytes_in`` and ``bytes_out`` of the top ``talkers`` in each step of time, and of all others as one.

    ``place`` counts from 0, the one that moves most; OTHERS have no CLIENT. ``step_s`` is when the step begins, in Unix
    time.
    """
    most = top(found, count).select(CLIENT)
    most = with_columns(most, {"place": np.arange(len(most))})
    steps = _Steps(Few.of(most, CLIENT, "place"), step_s)
    hours = OfDays(KEPT, steps.of_hours) if are_of_hours(step_s) else None
    sums = collected(usage, ("time", *CLIENT, *_MOVED), steps, _SCHEMA, adding(_APART, _HOW), hours)
    place = ints(sums, "place")
    names = most.select(CLIENT).take(pa.array(place, mask=place == OTHERS))
    return with_columns(sums, {name: names[name] for name in CLIENT})


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
