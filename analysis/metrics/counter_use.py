"""What counters were charged, time by time; and used over limit, over the window of enforcement before each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import caps
from analysis.metrics.addresses import is_counted
from analysis.metrics.counters import (
    CONNECTIONS,
    KINDS,
    NAMED_BY,
    OF_WORD,
    PER_USED,
    USED,
    WINDOWS,
    counter,
    counter_by_kind,
    counter_of_address,
    window_ms,
)
from analysis.metrics.runs import starts
from analysis.table.arrays import MOST_SUM, Bools, Floats, Ints, floats, ints, times_ms

OF_KINDS: Final = (*KINDS, CONNECTIONS.word)
LIMIT_OF_USED: Final = np.array([*PER_USED.values(), CONNECTIONS.unit.per_used])
"""[kind] what a limit is multiplied with that is in what is charged."""
_PER_USED: Final = {**PER_USED, CONNECTIONS.word: CONNECTIONS.unit.per_used}
_USED: Final = {**USED, CONNECTIONS.word: CONNECTIONS.columns.used}
_READ: Final = (
    *("time", "ip", *WINDOWS, *NAMED_BY),
    *(name for kind in KINDS for name in (f"{kind}_rule", f"{kind}_limit", USED[kind])),
    *(CONNECTIONS.columns.rule, CONNECTIONS.columns.limit, CONNECTIONS.columns.used),
)
ROWS: Final = pa.schema(
    [
        *(("kind", pa.int8()), ("window_ms", pa.int32()), ("counter", pa.int64()), ("time_ms", pa.int64())),
        *(("limit", pa.float64()), ("bytes", pa.int64())),
    ]
)
"""Of counters, between tasks: what was used as its column counts it, and the limit likewise."""


def read(capped: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that ``used`` needs, of kinds that anybody has caps of."""
    return (*_READ, *(name for kind in capped for name in OF_WORD[kind].row.cap_columns[:2]))


@dataclass(frozen=True, slots=True)
class CounterUse:
    """What counters of one kind, and one window of enforcement, were charged: each time of each once.

    Those of one counter stand together, by time.
    """

    kind: int
    """In OF_KINDS."""
    window_ms: int
    counter: Ints
    time_ms: Ints
    limit: Floats
    bytes_: Ints

    @classmethod
    def of(cls, kind: int, window_ms: int, rows: pa.Table) -> "CounterUse":
        """Add up rows (ROWS, but for kind and window): clients that share a counter stand in rows of one time."""
        counter, time_ms, bytes_ = (ints(rows, name) for name in ("counter", "time_ms", "bytes"))
        code, _ = pd.factorize(counter)
        since_ms = time_ms - time_ms.min()
        order = np.argsort(code * (int(since_ms.max()) + 1) + since_ms)
        counter, time_ms = counter[order], time_ms[order]
        first = starts(counter, time_ms)
        limit = floats(rows, "limit")[order][first]
        rows_of_one = int(np.diff(first, append=len(counter)).max(initial=1))
        together = np.add.reduceat(np.minimum(bytes_[order], MOST_SUM // rows_of_one), first)
        return cls(kind, window_ms, counter[first], time_ms[first], limit, together)

    @classmethod
    def parts(cls, rows: pa.Table) -> "Iterator[CounterUse]":
        """Add up ROWS, of any kinds and windows."""
        for kind, of_kind in _apart(rows, "kind"):
            for window, of_both in _apart(of_kind, "window_ms"):
                yield cls.of(kind, window, of_both)

    def rows(self) -> pa.Table:
        """Return them as ROWS."""
        same = {"kind": np.full(len(self.counter), self.kind), "window_ms": np.full(len(self.counter), self.window_ms)}
        each = {"counter": self.counter, "time_ms": self.time_ms, "limit": self.limit, "bytes": self.bytes_}
        return pa.table(same | each).select(ROWS.names).cast(ROWS)

    def used(self, interval_ms: Ints | int) -> Floats:
        """Return used over limit at each time, over the window before it; intervals are of one length, or of many."""
        whole = np.maximum(np.rint(self.window_ms / interval_ms), 1).astype(np.int64)
        span_ms = (whole - 1) * interval_ms + interval_ms // 2
        # One number for counter and time: from any time, those of the window before it stand together.
        since_ms = self.time_ms - self.time_ms.min()
        firsts = starts(self.counter)
        group = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(self.counter)))
        at = group * (int(since_ms.max()) + int(np.max(span_ms)) + 1) + since_ms
        before = np.searchsorted(at, at - span_ms)
        # Sums may begin anew at 2^63, and their differences are right: of a window that does not reach it by itself.
        most = MOST_SUM // int((np.arange(len(at)) - before).max() + 1)
        up_to = np.append(0, np.cumsum(np.minimum(self.bytes_, most)))
        within = up_to[1:] - up_to[before]
        return np.asarray(within / (self.limit * (whole * interval_ms / 1000)))


def of_counter(rows: pa.Table) -> Ints:
    """Return what is the same for all ROWS of a counter."""
    return ints(rows, "counter")


def used(tables: Iterator[pa.Table], capped: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield what counters were charged in each table (``read``), as ROWS."""
    for table in tables:
        for kind, numbers in counter_by_kind(table).items():
            yield from _used(table, kind, numbers)
        for kind in capped:
            of_caps = caps.apart(table, kind)
            if len(of_caps):
                yield from _used(of_caps, kind, counter(of_caps, kind))
        of_addresses = table.filter(pa.array(is_counted(table)))
        if len(of_addresses):
            of_addresses = of_addresses.combine_chunks()
            yield from _used(of_addresses, CONNECTIONS.word, counter_of_address(of_addresses))


def _used(table: pa.Table, kind: str, numbers: Ints) -> Iterator[pa.Table]:
    columns = {
        "kind": np.full(len(numbers), OF_KINDS.index(kind)),
        "window_ms": window_ms(table, kind),
        "counter": numbers,
        "time_ms": times_ms(table),
        "limit": pc.divide(table[f"{kind}_limit"], _PER_USED[kind]),
        "bytes": table[_USED[kind]],
    }
    limited = pc.and_(pc.greater(table[f"{kind}_limit"], 0), pc.is_valid(table[f"{kind}_rule"]))
    for counted in CounterUse.parts(pa.table(columns).filter(limited)):
        yield counted.rows()


@dataclass(frozen=True, slots=True)
class Readings:
    """Arrays of one length: counters at the ends of intervals, those of one together, by time."""

    kind: Ints
    counter: Ints
    time_ms: Ints
    limit: Floats
    used: Floats
    """Over the limit: 1.0 is the quota."""
    is_active: Bools
    """Whether anything was charged in the interval itself."""

    def only(self, chosen: Bools) -> "Readings":
        """Return some of them."""
        columns: tuple[Any, ...] = (self.kind, self.counter, self.time_ms, self.limit, self.used, self.is_active)
        return Readings(*(each[chosen] for each in columns))

    @classmethod
    def of(cls, rows: pa.Table, interval_ms_at: Callable[[Ints], Ints]) -> "Readings":
        """Return what ROWS of whole counters add up to; ``interval_ms_at`` some times intervals were so long."""
        parts = [
            (
                np.full(len(each.counter), each.kind),
                *(each.counter, each.time_ms, each.limit, each.used(interval_ms_at(each.time_ms)), each.bytes_ > 0),
            )
            for each in CounterUse.parts(rows)
        ]
        columns: list[Any] = [np.concatenate(each) for each in zip(*parts, strict=True)]
        if len(parts) > len(OF_KINDS):  # several windows: a counter may be in two parts
            _, counter, time_ms, *_ = columns
            order = np.lexsort((time_ms, counter))
            columns = [each[order] for each in columns]
        return cls(*columns)


def _apart(rows: pa.Table, name: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each value of a column; those of a single one, as most are, without a copy."""
    values = pc.unique(rows[name]).to_pylist()
    for value in values:
        yield value, rows if len(values) == 1 else rows.filter(pc.equal(rows[name], value))
