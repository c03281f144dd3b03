"""How close each counter runs to its limit: used over limit, over the window of enforcement.

At the end of every interval the bytes of the window before it are divided by what the limit allows in such a window,
for each counter: all clients that share it, on one broker and one proxy instance. An interval without use counts as
0, recorded or not. Percentiles are over the intervals of the period: the least value that a share of them does not
exceed. Those while active are over the intervals in which the counter was charged anything.

- A window is taken in whole intervals: with intervals of 1 s and Kafka's 11 samples of 1 s it is 11 intervals, and
  with intervals longer than it, it is one of them.
- Intervals of one instance begin together, within a tolerance of half an interval.
- Of the first windows of a period, the hour before it is known.
- Percentiles are right to 0.2 % (``runs``).
- Of a connection rate, used are attempts to connect, those that were refused too: above 1 is what came.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import counter_use
from analysis.metrics.counter_use import LIMIT_OF_USED, OF_KINDS, Readings
from analysis.metrics.counters import CONNECTIONS, COUNTER, KINDS, OF_WORD
from analysis.metrics.period import Period
from analysis.metrics.runs import Runs, codes, starts
from analysis.table.arrays import DAY_MS, Bools, Ints, added, floats, folded, ints, together
from analysis.table.hashes import places
from analysis.table.parquet import plain
from analysis.table.parts import Parts
from analysis.table.reading import Keeping, Making, Rows
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE, TEXT

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
WHILE_ACTIVE: Final = {f"active_{name}": share for name, share in PERCENTILES.items()}
COUNTED: Final = ("kind", "counter")
KEPT: Final = "readings"
DAYS: Final = "headroom_days"
_OF_KIND: Final = ("unit_user", "unit_client_id", "counter")
_NAMED: Final = pa.schema(
    [
        *(("kind", TEXT), ("counter", pa.int64())),
        *(FILE.field(name) for name in COUNTER[:3]),
        *((name, TEXT) for name in ("rule", "unit_user", "unit_client_id")),
    ]
)
_SCHEMA: Final = pa.schema(
    [
        *(("kind", pa.string()), ("counter", pa.int64()), ("date", pa.date32())),
        *((name, pa.float64()) for name in (*PERCENTILES, "max", "over", "limit", "active", *WHILE_ACTIVE)),
    ]
)
_RUNS: Final = ("code", "busy", "active")
_DAYS: Final = pa.schema(
    [
        *(("kind", pa.int8()), ("counter", pa.int64()), ("day", pa.int32())),
        *(("limit", pa.float64()), ("max", pa.float64()), ("over", pa.int64())),
        *((name, pa.list_(pa.int32())) for name in _RUNS),
    ]
)
"""What is kept: a row for each counter and ``day`` (since 1970) with use. ``limit`` is the last one, as ROWS have it;
``over`` in how many intervals more was used than it; and Runs of used over limit."""


def counters(clients: Parts, capped: pa.Table | None = None, addresses: pa.Table | None = None) -> pa.Table:
    """Return COUNTED and the names (COUNTER) of each counter; ``clients`` is what ``metrics.clients`` returned,
    ``capped`` what ``metrics.caps`` did, and ``addresses`` what ``metrics.addresses`` did.
    """
    columns = [*COUNTER[:3], *(f"{kind}_{name}" for kind in KINDS for name in ("rule", *_OF_KIND))]
    named = chain(
        (_of_kind(table, kind) for table in clients.tables(columns) for kind in KINDS),
        [] if capped is None else map(partial(_of_caps, capped), KINDS),
        [] if addresses is None else [_of_addresses(addresses)],
    )
    return together(folded((each.select(_NAMED.names).cast(_NAMED) for each in named), _once), _NAMED)


def _once(named: pa.Table) -> pa.Table:
    return added(named, COUNTED, dict.fromkeys((each for each in _NAMED.names if each not in COUNTED), "first"))


def _of_kind(clients: pa.Table, kind: str) -> pa.Table:
    found = clients.filter(clients[f"{kind}_rule"].is_valid())
    names = {name: found[f"{kind}_{name}"] for name in ("rule", *_OF_KIND)}
    return _named(found, kind, names, of_cluster=OF_WORD[kind].row.of_cluster)


def _of_caps(capped: pa.Table, kind: str) -> pa.Table:
    found = capped.filter(pc.equal(capped["kind"], kind))
    names = {name: found[name] for name in ("rule", *_OF_KIND)}
    return _named(found, kind, names, of_cluster=OF_WORD[kind].row.of_cluster)


def _of_addresses(addresses: pa.Table) -> pa.Table:
    found = addresses.filter(addresses["counter"].is_valid())
    names = {
        "rule": found[CONNECTIONS.columns.rule],
        "unit_user": pc.binary_join_element_wise("ip:", found["ip"], ""),
        "unit_client_id": pa.nulls(len(found), TEXT),
        "counter": found["counter"],
    }
    return _named(found, CONNECTIONS.word, names, of_cluster=True)


def _named(found: pa.Table, kind: str, names: Mapping[str, Any], *, of_cluster: bool) -> pa.Table:
    same = {
        "broker": pa.repeat(pa.scalar(-1, pa.int32()), len(found)) if of_cluster else found["broker"],
        "kind": pa.repeat(kind, len(found)),
    }
    return pa.table({**{name: found[name] for name in COUNTER[:2]}, **same, **names})


def named(counted: pa.Table, counters: pa.Table) -> pa.Table:
    """Return a table of COUNTED with their names (``counters``); those without are left out."""
    at = places(counted, counters, COUNTED)
    found = counted.filter(pa.array(at >= 0))
    names = counters.take(pa.array(at[at >= 0]))
    of_counter = {name: names[name] for name in _NAMED.names if name not in COUNTED}
    others = {name: found[name] for name in found.column_names if name not in COUNTED}
    return pa.table({**{name: found[name] for name in COUNTED}, **of_counter, **others})


def of_period(daily: Parts, counters: pa.Table) -> pa.Table:
    """Return what ``making`` says of the whole period, with names."""
    columns = [name for name in daily.schema.names if name != "date"]
    parts = (each.filter(each["date"].is_null()) for each in daily.tables())
    return named(pa.concat_tables([daily.schema.empty_table(), *parts]).select(columns), counters)


def keeping(usage: UsageRows, period: Period) -> Keeping:
    """Return what is kept of rows as KEPT."""
    days = _Days(period, usage.begin_us, usage.kept_days)
    used = partial(counter_use.used, capped=period.capped)
    return Keeping(
        *(KEPT, counter_use.read(period.capped), used, _DAYS),
        of_task=counter_use.of_counter,
        finish=days,
        rows=Rows.LED_IN,
    )


def making(usage: UsageRows, period: Period) -> Making:
    """Return COUNTED, ``date``, ``p50``, ``p95``, ``p99``, ``max``, ``over``, ``limit``, ``active`` and WHILE_ACTIVE.

    Of used over limit; 1.0 is the quota. A counter has a row for each date with use, and one without a date for the
    whole period. ``over`` is the share of intervals in which more was used than the limit allows; ``limit`` is the last
    one. ``active`` is the share of intervals in which anything was used, and WHILE_ACTIVE are over these; null: none.
    """
    days = _Days(period, usage.begin_us, usage.kept_days)
    return Making(DAYS, keeping(usage, period), _Measure(days, period), _SCHEMA)


@dataclass(frozen=True, slots=True)
class _Days:
    """From ROWS of whole counters, and what is kept of them, to one table of _DAYS."""

    period: Period
    begin_us: int | None
    """Rows before it are here for the windows of those that follow."""
    kept: tuple[int, ...]
    """Days, of which rows are here for the same reason."""

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        rows: list[pa.Table] = []
        days: list[pa.Table] = []
        for table in tables:
            (days if "code" in table.column_names else rows).append(plain(table))
        if rows:
            used = Readings.of(pa.concat_tables(rows), self.period.interval_ms_at)
            days.append(_of_days(used.only(self._is_meant(used.time_ms))))
        if days:
            yield pa.concat_tables([each.select(_DAYS.names).cast(_DAYS) for each in days])

    def _is_meant(self, time_ms: Ints) -> Bools:
        begins = 0 if self.begin_us is None else -(-self.begin_us // 1000)
        return np.asarray((time_ms >= begins) & ~np.isin(time_ms // DAY_MS, np.array(self.kept, dtype=np.int64)))


def _of_days(used: Readings) -> pa.Table:
    day = used.time_ms // DAY_MS
    first = starts(used.counter, day)
    ends = np.append(first, len(day))[1:]
    group = np.repeat(np.arange(len(first)), ends - first)
    runs = Runs.of(group, codes(used.used), np.ones_like(day), used.is_active.astype(np.int64))
    offsets = pa.array(np.append(runs.first, len(runs.code)), pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(each, pa.int32()))
        for name, each in zip(_RUNS, (runs.code, runs.busy, runs.active), strict=True)
    }
    columns = {
        "kind": used.kind[first],
        "counter": used.counter[first],
        "day": day[first],
        "limit": used.limit[ends - 1],
        "max": np.maximum.reduceat(used.used, first) if len(first) else used.used,
        "over": np.add.reduceat((used.used > 1).astype(np.int64), first) if len(first) else first,
        **lists,
    }
    return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a task does with whole counters."""

    days: _Days
    period: Period

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for found in self.days(tables):
            if len(found):
                order = np.lexsort((ints(found, "day"), ints(found, "counter")))
                table = found.take(pa.array(order))
                of_days = self._measured(table, np.arange(len(table)), ints(table, "day"))
                yield of_days
                if len(self.period.dates()) == 1:
                    no_date = pa.nulls(len(of_days), pa.date32())
                    yield of_days.set_column(of_days.schema.get_field_index("date"), "date", no_date)
                else:
                    yield self._measured(table, starts(ints(table, "counter")), None)

    def _measured(self, table: pa.Table, first: Ints, day: Ints | None) -> pa.Table:
        """Return the figures of each group of rows, from ``first`` on: a counter, on a ``day`` or (None) on all."""
        rows = np.diff(first, append=len(table))
        group = np.repeat(np.arange(len(first)), rows)
        last = first + rows - 1
        code, busy, active = (table[name].combine_chunks() for name in _RUNS)
        of_value = np.repeat(group, np.asarray(code.value_lengths()))
        runs = Runs.of(of_value, *(each.flatten().to_numpy().astype(np.int64) for each in (code, busy, active)))
        total = self.period.intervals if day is None else self._intervals_on(day)
        total = np.maximum(total, runs.sums(runs.busy))
        kind = ints(table, "kind")[first]
        most = np.maximum.reduceat(floats(table, "max"), first)
        columns = {
            "kind": pa.DictionaryArray.from_arrays(pa.array(kind), list(OF_KINDS)),
            "counter": ints(table, "counter")[first],
            "date": pa.nulls(len(first), pa.date32()) if day is None else pa.array(day.astype(np.int32), pa.date32()),
            **{name: np.minimum(runs.percentile(total, share), most) for name, share in PERCENTILES.items()},
            "max": most,
            "over": np.add.reduceat(ints(table, "over"), first) / total,
            "limit": floats(table, "limit")[last] * LIMIT_OF_USED[kind],
            "active": runs.sums(runs.active) / total,
            **{
                name: pa.array(np.minimum(runs.while_active(share), most), from_pandas=True)
                for name, share in WHILE_ACTIVE.items()
            },
        }
        return pa.table(columns)

    def _intervals_on(self, day: Ints) -> Ints:
        """Return how many intervals of the period are on each day."""
        days, number = np.unique(day, return_inverse=True)
        dates = [date(1970, 1, 1) + timedelta(days=each) for each in days.tolist()]
        return np.array([self.period.intervals_on(each) for each in dates])[number]
