"""Sums of moments, as neighbours are found from them: what each candidate did, and all others together.

What is *usual* is, of each client that is active in a moment, its own mean in the period: a moment in which nobody is
active that is ever delayed has nothing usual in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.metrics.broker_moments import CLIENT, MOMENT_S, PLACE, SUMS
from analysis.metrics.clients import ACTIVE
from analysis.metrics.counters import KINDS
from analysis.metrics.few import Few
from analysis.table import hashes
from analysis.table.arrays import MOST_SUM, Floats, Ints, folded, ints, summed, times_ms, together
from analysis.table.exchange import exchange, packed, tasks_for
from analysis.table.parquet import plain
from analysis.table.parts import Parts
from analysis.table.reading import adding
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

_APART: Final = (*PLACE, "moment", "number")
_MUTED: Final = tuple(f"{kind}_muted_ms" for kind in KINDS)
_READ: Final = (
    *("time", "interval_ms", *CLIENT, "bytes_in", "bytes_out"),
    *(*_MUTED, "requests", "request_time_ms"),
)
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in PLACE),
        *((name, pa.int64()) for name in ("moment", "number", *SUMS)),
    ]
)
_OF_CLIENT: Final = (*_MUTED, ACTIVE, "requests", "request_time_ms")
_MEANS: Final = pa.schema([*(FILE.field(name) for name in CLIENT), *((name, pa.int64()) for name in _OF_CLIENT)])
_HOW: Final = dict.fromkeys(SUMS, "sum")
_ROWS_OF_ONE: Final = 10
"""At least, in a period that is worth several tasks: rows that are summed to one before they travel."""


def moments(usage: UsageRows, chosen: pa.Table, clients: Parts, rows: int) -> Parts:
    """Return PLACE, ``moment`` (a number), the ``number`` of one of ``chosen`` (null: all others), and SUMS.

    What a row of a longer interval says is spread evenly over the moments of it. ``usual_delay_us`` is for how long
    those that were active would have been muted, each by its mean in the period (``clients``), and ``usual_time_us``
    what their requests would have taken. ``rows`` is how many there are of usage, about.
    """
    tasks = tasks_for(rows // _ROWS_OF_ONE, usage.spark.sparkContext.defaultParallelism)
    work = _Moments(Few.of(chosen, CLIENT, "number"), _Usual.of(clients), tasks)
    return exchange(usage, _READ, work, tasks).parts(_received, _SCHEMA)


def _received(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the sums of what reached a task, those of a broker together, so that of the others no file is read."""
    for sums in folded(tables, adding(_APART, _HOW)):
        yield plain(sums).sort_by([(name, "ascending") for name in (*PLACE, "moment")])


@dataclass(frozen=True, slots=True)
class _Usual:
    """What is usual of clients, [client]; it travels to the workers."""

    known: Ints
    """``hashes.of_columns`` of CLIENT, ascending."""
    muted_us: Floats
    """For each millisecond in which it is active."""
    request_us: Floats
    """For each request."""

    @classmethod
    def of(cls, clients: Parts) -> "_Usual":
        named = (each.filter(each["user"].is_valid()) for each in clients.tables(_MEANS.names))
        sums = together(summed(named, CLIENT, dict.fromkeys(_OF_CLIENT, "sum")), _MEANS)
        muted_ms = reduce(add, (ints(sums, name).astype(float) for name in _MUTED))
        known = hashes.of_columns(sums, CLIENT)
        order = np.argsort(known)
        return cls(
            known[order],
            _mean(1000 * muted_ms, ints(sums, ACTIVE))[order],
            _mean(1000 * ints(sums, "request_time_ms").astype(float), ints(sums, "requests"))[order],
        )

    def of_rows(self, table: pa.Table) -> tuple[Floats, Floats]:
        """Return ``muted_us`` and ``request_us`` of each row's client; 0 of one that is not known."""
        if not len(self.known):
            return np.zeros(len(table)), np.zeros(len(table))
        row = hashes.of_columns(table, CLIENT)
        place = np.minimum(np.searchsorted(self.known, row), len(self.known) - 1)
        known = self.known[place] == row
        return np.where(known, self.muted_us[place], 0), np.where(known, self.request_us[place], 0)


def _mean(total: Floats, count: Ints) -> Floats:
    return np.divide(total, count, out=np.zeros(len(total)), where=count > 0)


@dataclass(frozen=True, slots=True)
class _Moments:
    candidates: Few
    usual: _Usual
    tasks: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for sums in map(spread, summed(map(self._columns, tables), (*_APART, "span"), _HOW)):
            yield from packed(sums, hashes.of_columns(sums, PLACE) % self.tasks)

    def _columns(self, table: pa.Table) -> pa.Table:
        number = self.candidates.of_rows(table)
        muted_us, request_us = self.usual.of_rows(table)
        columns = {
            **{name: table[name] for name in PLACE},
            "moment": times_ms(table) // (1000 * MOMENT_S),
            "number": pa.array(number, mask=number < 0),
            # How many moments an interval is long.
            "span": np.maximum((ints(table, "interval_ms") + 500 * MOMENT_S) // (1000 * MOMENT_S), 1),
            "bytes": ints(table, "bytes_in") + ints(table, "bytes_out"),
            "delay_ms": reduce(add, (ints(table, name) for name in _MUTED)),
            "usual_delay_us": _whole(ints(table, "interval_ms") * muted_us),
            **{name: table[name] for name in ("requests", "request_time_ms")},
            "usual_time_us": _whole(ints(table, "requests") * request_us),
        }
        return pa.table(columns)


def spread(table: pa.Table) -> pa.Table:
    """Return sums of moments of those of intervals that are ``span`` moments long: of each as much, but for rests."""
    span = ints(table, "span")
    if not (span > 1).any():
        return table
    row = np.repeat(np.arange(len(table)), span)
    place = np.arange(len(row)) - np.repeat(np.cumsum(span) - span, span)
    found = table.select([*PLACE, "number"]).take(pa.array(row))
    found = found.append_column("moment", pa.array(ints(table, "moment")[row] + place))
    for name in SUMS:
        part, rest = np.divmod(ints(table, name), span)
        found = found.append_column(name, pa.array(part[row] + (place < rest[row])))
    return found


def _whole(values: Floats) -> Ints:
    """Whole numbers, so that a part of a sum can be taken from it again, and nothing is left of none."""
    return np.rint(np.minimum(values, MOST_SUM)).astype(np.int64)
