"""How close each counter runs to its limit: used over limit, over the window of enforcement.

At the end of every interval the bytes of the window before it are divided by what the limit allows in such a window,
for each counter: all clients that share it, on one broker and one proxy instance. An interval without use counts as
0, recorded or not. Percentiles are over the intervals of the period: the least value that a share of them does not
exceed. Those while active are over the intervals in which the counter was charged anything.

- A window is taken in whole intervals: with intervals of 1 s and Kafka's 11 samples of 1 s it is 11 intervals, and
  with intervals longer than it, it is one of them.
- Intervals of one instance begin together, within a tolerance of half an interval.
- The first window of a period does not know what was before the period.
- Of a connection rate, used are attempts to connect, those that were refused too: above 1 is what came.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics import caps
from analysis.metrics.addresses import is_counted
from analysis.metrics.counters import (
    CONNECTIONS,
    COUNTER,
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
from analysis.metrics.groups import Groups, starts
from analysis.metrics.period import Period
from analysis.table.arrays import DAY_MS, MOST_SUM, Bools, Floats, Ints, floats, ints, times_ms
from analysis.table.exchange import exchange, packed, tasks_for
from analysis.table.scan import UsageRows

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
WHILE_ACTIVE: Final = {f"active_{name}": share for name, share in PERCENTILES.items()}
COUNTED: Final = ("kind", "counter")
_READ: Final = (
    *("time", "ip", *WINDOWS, *NAMED_BY),
    *(name for kind in KINDS for name in (f"{kind}_rule", f"{kind}_limit", USED[kind])),
    *(CONNECTIONS.columns.rule, CONNECTIONS.columns.limit, CONNECTIONS.columns.used),
)
_KINDS: Final = (*KINDS, CONNECTIONS.word)
_PER_USED: Final = {**PER_USED, CONNECTIONS.word: CONNECTIONS.unit.per_used}
_USED: Final = {**USED, CONNECTIONS.word: CONNECTIONS.columns.used}
_ROWS: Final = pa.schema(
    [
        *(("kind", pa.int8()), ("window_ms", pa.int32()), ("counter", pa.int64()), ("time_ms", pa.int64())),
        *(("limit", pa.float64()), ("bytes", pa.int64())),
    ]
)
"""Of counters, between tasks: what was used as its column counts it, and the limit likewise."""
_SCHEMA: Final = pa.schema(
    [
        *(("kind", pa.string()), ("counter", pa.int64()), ("date", pa.date32())),
        *((name, pa.float64()) for name in (*PERCENTILES, "max", "over", "limit", "active", *WHILE_ACTIVE)),
    ]
)


def counters(clients: DataFrame, capped: DataFrame | None = None, addresses: DataFrame | None = None) -> DataFrame:
    """Return COUNTED and the names (COUNTER) of each counter; ``clients`` is what ``metrics.clients`` returned,
    ``capped`` what ``metrics.caps`` did, and ``addresses`` what ``metrics.addresses`` did.
    """
    named = [
        clients.where(F.col(f"{kind}_rule").isNotNull()).select(
            *COUNTER[:2],
            F.lit(-1).alias("broker") if OF_WORD[kind].row.of_cluster else F.col("broker"),
            F.lit(kind).alias("kind"),
            F.col(f"{kind}_rule").alias("rule"),
            *(F.col(f"{kind}_{name}").alias(name) for name in ("unit_user", "unit_client_id", "counter")),
        )
        for kind in KINDS
    ]
    if capped is not None:
        of_cluster = F.col("kind").isin([kind for kind in KINDS if OF_WORD[kind].row.of_cluster])
        broker = F.when(of_cluster, F.lit(-1)).otherwise(F.col("broker")).cast("int")
        named.append(capped.withColumn("broker", broker).select(*COUNTER, "counter"))
    if addresses is not None:
        of_address = {
            "broker": F.lit(-1),
            "kind": F.lit(CONNECTIONS.word),
            "rule": F.col(CONNECTIONS.columns.rule),
            "unit_user": F.concat(F.lit("ip:"), F.col("ip")),
            "unit_client_id": F.lit(None).cast("string"),
        }
        counted = addresses.where(F.col("counter").isNotNull())
        named.append(counted.select(*COUNTER[:2], *(of_address[name].alias(name) for name in COUNTER[2:]), "counter"))
    return reduce(DataFrame.unionByName, named).distinct()


def headroom(usage: UsageRows, period: Period) -> DataFrame:
    """Return COUNTED, ``date``, ``p50``, ``p95``, ``p99``, ``max``, ``over``, ``limit``, ``active`` and WHILE_ACTIVE.

    Of used over limit; 1.0 is the quota. A counter has a row for each date with use, and one without a date for the
    whole period. ``over`` is the share of intervals in which more was used than the limit allows; ``limit`` is the last
    one. ``active`` is the share of intervals in which anything was used, and WHILE_ACTIVE are over these; null: none.
    """
    tasks = tasks_for(period.rows, usage.spark.sparkContext.defaultParallelism)
    read = (*_READ, *(name for kind in period.capped for name in OF_WORD[kind].row.cap_columns[:2]))
    return exchange(usage, read, _Shared(tasks, period.capped), tasks).frame(_Measure(period), _SCHEMA)


@dataclass(frozen=True, slots=True)
class CounterUse:
    """What counters of one kind, and one window of enforcement, were charged: each time of each once.

    Those of one counter stand together, by time.
    """

    kind: int
    """In _KINDS."""
    window_ms: int
    counter: Ints
    time_ms: Ints
    limit: Floats
    bytes_: Ints

    @classmethod
    def of(cls, kind: int, window_ms: int, rows: pa.Table) -> "CounterUse":
        """Add up rows (_ROWS, but for kind and window): clients that share a counter stand in rows of one time."""
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
        """Add up _ROWS, of any kinds and windows."""
        for kind, of_kind in _apart(rows, "kind"):
            for window, of_both in _apart(of_kind, "window_ms"):
                yield cls.of(kind, window, of_both)

    def rows(self) -> pa.Table:
        """Return them as _ROWS."""
        same = {"kind": np.full(len(self.counter), self.kind), "window_ms": np.full(len(self.counter), self.window_ms)}
        each = {"counter": self.counter, "time_ms": self.time_ms, "limit": self.limit, "bytes": self.bytes_}
        return pa.table(same | each).select(_ROWS.names).cast(_ROWS)

    def used(self, interval_ms: int) -> Floats:
        """Return used over limit at each time, over the window before it."""
        whole = max(round(self.window_ms / interval_ms), 1)
        span_ms = (whole - 1) * interval_ms + interval_ms // 2
        # One number for counter and time: from any time, those of the window before it stand together.
        since_ms = self.time_ms - self.time_ms.min()
        firsts = starts(self.counter)
        group = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(self.counter)))
        at = group * (int(since_ms.max()) + span_ms + 1) + since_ms
        before = np.searchsorted(at, at - span_ms)
        # Sums may begin anew at 2^63, and their differences are right: of a window that does not reach it by itself.
        most = MOST_SUM // int((np.arange(len(at)) - before).max() + 1)
        up_to = np.append(0, np.cumsum(np.minimum(self.bytes_, most)))
        within = up_to[1:] - up_to[before]
        return np.asarray(within / (self.limit * (whole * interval_ms / 1000)))


@dataclass(frozen=True, slots=True)
class _Shared:
    """Sends the rows of a counter to one task."""

    tasks: int
    capped: tuple[str, ...] = ()

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for kind, numbers in counter_by_kind(table).items():
                yield from self._sent(table, kind, numbers)
            for kind in self.capped:
                of_caps = caps.apart(table, kind)
                if len(of_caps):
                    yield from self._sent(of_caps, kind, counter(of_caps, kind))
            of_addresses = table.filter(pa.array(is_counted(table)))
            if len(of_addresses):
                of_addresses = of_addresses.combine_chunks()
                yield from self._sent(of_addresses, CONNECTIONS.word, counter_of_address(of_addresses))

    def _sent(self, table: pa.Table, kind: str, numbers: Ints) -> Iterator[pa.Table]:
        columns = {
            "kind": np.full(len(numbers), _KINDS.index(kind)),
            "window_ms": window_ms(table, kind),
            "counter": numbers,
            "time_ms": times_ms(table),
            "limit": pc.divide(table[f"{kind}_limit"], _PER_USED[kind]),
            "bytes": table[_USED[kind]],
        }
        limited = pc.and_(pc.greater(table[f"{kind}_limit"], 0), pc.is_valid(table[f"{kind}_rule"]))
        for counted in CounterUse.parts(pa.table(columns).filter(limited)):
            yield from packed(counted.rows(), counted.counter % self.tasks)


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

    @classmethod
    def of(cls, rows: pa.Table, interval_ms: int) -> "Readings":
        """Return what _ROWS of whole counters add up to."""
        parts = [
            (
                np.full(len(each.counter), each.kind),
                *(each.counter, each.time_ms, each.limit, each.used(interval_ms), each.bytes_ > 0),
            )
            for each in CounterUse.parts(rows)
        ]
        columns: list[Any] = [np.concatenate(each) for each in zip(*parts, strict=True)]
        if len(parts) > len(_KINDS):  # several windows: a counter may be in two parts
            _, counter, time_ms, *_ = columns
            order = np.lexsort((time_ms, counter))
            columns = [each[order] for each in columns]
        return cls(*columns)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a task does with the rows of whole counters."""

    period: Period

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        rows = list(tables)
        if rows:
            used = Readings.of(pa.concat_tables(rows), self.period.interval_ms)
            rank = np.empty(len(used.used), dtype=np.int64)
            rank[np.argsort(used.used)] = np.arange(len(rank))
            day = used.time_ms // DAY_MS
            groups = Groups.of(used.used, used.is_active, rank, starts(used.counter))
            yield self._measured(used, groups, None)
            if day.min() != day.max():
                groups = Groups.of(used.used, used.is_active, rank, starts(used.counter, day))
            yield self._measured(used, groups, day[groups.first])

    def _measured(self, used: Readings, groups: Groups, day: Ints | None) -> pa.Table:
        """Return the figures of each group: a counter, on a ``day`` or (None) in all of the period."""
        first, last = groups.first, groups.first + groups.busy - 1
        total = np.maximum(self.period.intervals if day is None else self._intervals_on(day), groups.busy)
        columns = {
            "kind": pa.DictionaryArray.from_arrays(pa.array(used.kind[first]), list(_KINDS)),
            "counter": used.counter[first],
            "date": pa.nulls(len(first), pa.date32()) if day is None else pa.array(day.astype(np.int32), pa.date32()),
            **{name: groups.percentile(total, share) for name, share in PERCENTILES.items()},
            "max": groups.ranked[last],
            "over": np.add.reduceat((used.used > 1).astype(float), first) / total,
            "limit": used.limit[last] * np.array([*_PER_USED.values()])[used.kind[first]],
            "active": groups.active / total,
            **{name: pa.array(groups.while_active(share), from_pandas=True) for name, share in WHILE_ACTIVE.items()},
        }
        return pa.table(columns)

    def _intervals_on(self, day: Ints) -> Ints:
        """Return how many intervals of the period are on each day."""
        days, number = np.unique(day, return_inverse=True)
        dates = [date(1970, 1, 1) + timedelta(days=each) for each in days.tolist()]
        return np.array([self.period.intervals_on(each) for each in dates])[number]


def _apart(rows: pa.Table, name: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each value of a column; those of a single one, as most are, without a copy."""
    values = pc.unique(rows[name]).to_pylist()
    for value in values:
        yield value, rows if len(values) == 1 else rows.filter(pc.equal(rows[name], value))
