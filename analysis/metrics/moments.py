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
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.broker_moments import CLIENT, MOMENT_S, PLACE, SUMS
from analysis.metrics.clients import ACTIVE
from analysis.metrics.counters import KINDS
from analysis.metrics.few import Few
from analysis.metrics.sums import total
from analysis.table import hashes
from analysis.table.arrays import MOST_SUM, Floats, Ints, floats, ints, summed, times_ms
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
_USUAL: Final = pa.schema([("client", pa.int64()), ("muted_us", pa.float64()), ("request_us", pa.float64())])


def moments(usage: UsageRows, chosen: DataFrame, clients: DataFrame) -> DataFrame:
    """Return PLACE, ``moment`` (a number), the ``number`` of one of ``chosen`` (null: all others), and SUMS.

    What a row of a longer interval says is spread evenly over the moments of it. ``usual_delay_us`` is for how long
    those that were active would have been muted, each by its mean in the period (``clients``), and ``usual_time_us``
    what their requests would have taken.
    """
    few = Few.of(chosen.select(*CLIENT, "number").toArrow(), CLIENT, "number")
    scanned = usage.scan(_READ, _Moments(few, _Usual.of(usage, clients)), _SCHEMA)
    return scanned.groupBy(*_APART).agg(*(total(name).alias(name) for name in SUMS))


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
    def of(cls, usage: UsageRows, clients: DataFrame) -> "_Usual":
        muted = total(reduce(add, map(F.col, _MUTED)))
        means = clients.where(F.col("user").isNotNull()).groupBy(*CLIENT)
        usual = means.agg(
            (1000 * F.try_divide(muted, total(ACTIVE))).alias("muted_us"),
            (1000 * F.try_divide(total("request_time_ms"), total("requests"))).alias("request_us"),
        ).na.fill(0.0)
        # Numbers for names are found where the names are: a hundred thousand of these would be much for the driver.
        table: pa.Table = usage.mapped(usual, _numbered, _USUAL).toArrow()
        order = np.argsort(ints(table, "client"))
        return cls(ints(table, "client")[order], floats(table, "muted_us")[order], floats(table, "request_us")[order])

    def of_rows(self, table: pa.Table) -> tuple[Floats, Floats]:
        """Return ``muted_us`` and ``request_us`` of each row's client; 0 of one that is not known."""
        if not len(self.known):
            return np.zeros(len(table)), np.zeros(len(table))
        row = hashes.of_columns(table, CLIENT)
        place = np.minimum(np.searchsorted(self.known, row), len(self.known) - 1)
        known = self.known[place] == row
        return np.where(known, self.muted_us[place], 0), np.where(known, self.request_us[place], 0)


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.table(batch)
        columns = [hashes.of_columns(table, CLIENT), table["muted_us"], table["request_us"]]
        yield from pa.table(columns, schema=_USUAL).to_batches()


@dataclass(frozen=True, slots=True)
class _Moments:
    candidates: Few
    usual: _Usual

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        yield from map(spread, summed(map(self._columns, tables), (*_APART, "span"), dict.fromkeys(SUMS, "sum")))

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
