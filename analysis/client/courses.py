"""How counters went: of each panel what the client used, and its limit, over time, and how full the counter was.

An interval's use is taken as even within it. A step of a plot keeps the mean, the least and the most of the intervals
in it; a part of a step without any counts as idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.client.asked import Asked
from analysis.client.charged import charged, read
from analysis.client.counters import Panel, kinds_of, own_rows
from analysis.metrics.counters import PER_USED
from analysis.metrics.headroom import PERCENTILES, CounterUse
from analysis.metrics.period import Period
from analysis.table.arrays import Floats, Ints, added, floats, ints
from analysis.table.exchange import exchange, packed
from analysis.table.scan import UsageRows

MOST_POINTS: Final = 1000
MOST_CHANGES: Final = 500
"""Of a limit, on one panel: the first ones."""
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_SENT: Final = ("panel", "counter", "time_ms")
_HOW: Final = {
    **dict.fromkeys(("own", "all", "muted_ms", "throttled", "mine"), "sum"),
    **dict.fromkeys(("interval_ms", "window_ms", "limit"), "max"),
}


def step_of(period: Period) -> int:
    """Return how many seconds a point stands for."""
    return next((step for step in _STEPS_S if period.seconds <= step * MOST_POINTS), _STEPS_S[-1])


@dataclass(frozen=True, slots=True)
class Course:
    """Of one panel; rates are in the unit of the limit, [step]."""

    mean: Floats
    least: Floats
    most: Floats
    """Of the client's own intervals."""
    shared: Floats
    """The mean of all that was charged to the counter."""
    muted: Floats
    """The share of time in which the client was muted: 0 to 1."""
    changes: Sequence[tuple[int, int, float | None]]
    """(since when in Unix ms, the counter, the limit): the first, and each change. None: no limit."""
    full: Sequence[float]
    """PERCENTILES and the most of used over limit, of all intervals of the period; none: it had no limit."""
    full_while_active: Sequence[float]
    """Likewise, of the intervals in which the client used something."""
    over: float
    """The share of all intervals in which more was used than the limit allows."""
    active: float
    """The share of all intervals in which the client used something."""


def courses(members: UsageRows, asked: Asked, chosen: Sequence[Panel], period: Period) -> dict[int, Course]:
    """Return the course of each panel; ``members`` are the rows of all who are charged to their counters."""
    if not chosen:
        return {}
    capped = period.capped
    work = _Charges.of(asked, chosen, capped)
    tasks = min(len(chosen), members.spark.sparkContext.defaultParallelism)
    received = exchange(members, read(work.kinds, capped), _Sent(work, tasks), tasks)
    per_used = {panel.number: PER_USED.get(panel.last.kind, 1.0) for panel in chosen}
    found = received.collect(_Drawn(period, step_of(period), per_used))
    return {row.pop("panel"): _course(row) for row in found.to_pylist()}


def _course(row: dict[str, Any]) -> Course:
    arrays = {name: np.array(row[name]) for name in ("mean", "least", "most", "shared", "muted")}
    changes = [
        (since, counter, None if np.isnan(limit) else limit)
        for since, counter, limit in zip(row["since_ms"], row["counter"], row["limit"], strict=True)
    ]
    return Course(
        **arrays,
        changes=changes,
        full=row["full"],
        full_while_active=row["full_while_active"],
        over=row["over"],
        active=row["active"],
    )


@dataclass(frozen=True, slots=True)
class _Charges:
    """What rows were charged to the counters of panels. It travels to the workers."""

    asked: Asked
    kinds: tuple[str, ...]
    capped: tuple[str, ...]
    numbers: Ints
    """Of counters, ascending."""
    panel: Ints
    """[counter]."""
    nobodys: Ints
    """Of ``numbers``, those of no rule: what others have there is not shared."""

    @classmethod
    def of(cls, asked: Asked, chosen: Sequence[Panel], capped: Sequence[str]) -> "_Charges":
        pairs = sorted((each.counter, panel.number) for panel in chosen for each in panel.counters)
        nobodys = [each.counter for panel in chosen for each in panel.counters if each.rule is None]
        numbers, panel = np.array(pairs, dtype=np.int64).T
        return cls(asked, kinds_of(asked), tuple(capped), numbers, panel, np.array(nobodys, dtype=np.int64))

    def rows(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield sums by panel, counter and time."""
        mine = own_rows(table, self.asked)
        for _, _, rows in charged(table, self.kinds, self.capped):
            counter = ints(rows, "counter")
            place = np.minimum(np.searchsorted(self.numbers, counter), len(self.numbers) - 1)
            own = mine[ints(rows, "place")]
            chosen = (self.numbers[place] == counter) & (own | ~np.isin(counter, self.nobodys))
            if not chosen.any():
                continue
            used, limit = ints(rows, "used"), floats(rows, "limit")
            columns = {
                "panel": self.panel[place],
                "counter": counter,
                "time_ms": ints(rows, "time_ms"),
                "interval_ms": np.maximum(ints(rows, "interval_ms"), 1),
                "window_ms": ints(rows, "window_ms"),
                "own": np.where(own, used, 0),
                "all": used,
                "muted_ms": np.where(own, ints(rows, "muted_ms"), 0),
                "throttled": np.where(own, ints(rows, "throttled"), 0),
                "mine": own.astype(np.int64),
                "limit": pa.array(limit, from_pandas=True),
            }
            yield added(pa.table(columns).filter(pa.array(chosen)).combine_chunks(), _SENT, _HOW)


@dataclass(frozen=True, slots=True)
class _Sent:
    work: _Charges
    tasks: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for rows in self.work.rows(table):
                yield from packed(rows, ints(rows, "panel") % self.tasks)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What a task does with all rows of some panels."""

    period: Period
    step_s: int
    per_used: dict[int, float]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        found = list(tables)
        if not found:
            return
        rows = added(pa.concat_tables(found).combine_chunks(), _SENT, _HOW).sort_by(
            [("panel", "ascending"), ("time_ms", "ascending"), ("mine", "ascending")]
        )
        panel = ints(rows, "panel")
        starts = np.flatnonzero(np.diff(panel, prepend=panel[0] - 1))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(panel)], strict=True):
            number = int(panel[first])
            line = _Line.of(rows.slice(first, last - first), self.per_used[number])
            values = {
                "panel": number,
                **line.steps(self.period, self.step_s),
                **line.changes(),
                **line.full(self.period),
            }
            yield pa.Table.from_pylist([values], _COURSE)


_NUMBERS: Final = pa.list_(pa.float64())
_COURSE: Final = pa.schema(
    [
        ("panel", pa.int64()),
        *((name, _NUMBERS) for name in ("mean", "least", "most", "shared", "muted", "full", "full_while_active")),
        *(("since_ms", pa.list_(pa.int64())), ("counter", pa.list_(pa.int64())), ("limit", _NUMBERS)),
        *(("over", pa.float64()), ("active", pa.float64())),
    ]
)


@dataclass(frozen=True, slots=True)
class _Line:
    """Intervals of one panel by time: those of the counter that the client was charged to last."""

    time_ms: Ints
    interval_ms: Ints
    counter: Ints
    own: Floats
    all: Floats
    """In units of the limit, times a second."""
    muted_ms: Floats
    mine: Ints
    """Rows of the client's own."""
    limit: Floats
    """NaN: none."""
    window_ms: int
    per_used: float

    @classmethod
    def of(cls, rows: pa.Table, per_used: float) -> "_Line":
        time_ms, counter, mine = (ints(rows, name) for name in ("time_ms", "counter", "mine"))
        there = np.flatnonzero(mine > 0)
        # Others stay on a counter that the client has left, and were on one to which it came later.
        last = there[np.maximum(np.searchsorted(time_ms[there], time_ms, side="right") - 1, 0)]
        chosen = np.flatnonzero((mine > 0) | (counter == counter[last]))
        limit = floats(rows, "limit")[last]
        return cls(
            time_ms[chosen],
            ints(rows, "interval_ms")[chosen],
            counter[last][chosen],
            floats(rows, "own")[chosen] * per_used,
            floats(rows, "all")[chosen] * per_used,
            floats(rows, "muted_ms")[chosen],
            mine[chosen],
            limit[chosen],
            int(ints(rows, "window_ms").max()),
            per_used,
        )

    def steps(self, period: Period, step_s: int) -> dict[str, Any]:
        """Return what Course has of each step."""
        begin_ms, end_ms = (round(each.timestamp() * 1000) for each in (period.begin, period.end))
        length = step_s * 1000
        first = begin_ms // length
        count = -(-end_ms // length) - first
        begins = np.clip((first + np.arange(count + 1)) * length, begin_ms, end_ms)
        row, step, within = self._parts(begins, first, length)
        share = within / self.interval_ms[row]
        seconds = np.maximum(np.diff(begins), 1) / 1000
        own = self.mine[row] > 0
        rate = (self.own / self.interval_ms * 1000)[row]
        most, least = np.zeros(count), np.full(count, np.inf)
        np.maximum.at(most, step, rate)
        np.minimum.at(least, step[own], rate[own])
        busy_ms = np.bincount(step[own], within[own], count)
        idle = busy_ms < seconds * 1000 - period.interval_ms / 2
        return {
            "mean": np.bincount(step, self.own[row] * share, count) / seconds,
            "least": np.where(idle, 0.0, least),
            "most": most,
            "shared": np.bincount(step, self.all[row] * share, count) / seconds,
            "muted": np.minimum(np.bincount(step, self.muted_ms[row] * share, count) / seconds / 1000, 1.0),
        }

    def _parts(self, begins: Ints, first: int, length: int) -> tuple[Ints, Ints, Ints]:
        """Return (row, step, ms of the row within the step) of all parts of rows in steps."""
        ends_ms = self.time_ms + self.interval_ms
        last = len(begins) - 2
        from_step = np.clip(self.time_ms // length - first, 0, last)
        to_step = np.clip((ends_ms - 1) // length - first, from_step, last)
        parts = to_step - from_step + 1
        row = np.repeat(np.arange(len(parts)), parts)
        step = np.repeat(from_step, parts) + np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
        within = np.minimum(ends_ms[row], begins[step + 1]) - np.maximum(self.time_ms[row], begins[step])
        there = within > 0
        return row[there], step[there], within[there]

    def changes(self) -> dict[str, Any]:
        """Return since when which counter and limit held."""
        there = np.flatnonzero(self.mine > 0)
        counter, limit = self.counter[there], self.limit[there]
        differs = np.ones(len(there), dtype=bool)
        differs[1:] = (counter[1:] != counter[:-1]) | ~_same(limit[1:], limit[:-1])
        at = there[differs][:MOST_CHANGES]
        return {"since_ms": self.time_ms[at], "counter": self.counter[at], "limit": self.limit[at]}

    def full(self, period: Period) -> dict[str, Any]:
        """Return how much of its limit the counter used, as ``metrics.headroom`` has it."""
        chosen = np.flatnonzero(self.limit > 0)
        active = int((self.own > 0).sum())
        known: dict[str, Any] = {"active": min(active / period.intervals, 1.0), "over": 0.0}
        if not len(chosen):
            return {**known, "full": [], "full_while_active": []}
        order = chosen[np.lexsort((self.time_ms[chosen], self.counter[chosen]))]
        charged_ = np.rint(self.all[order] / self.per_used).astype(np.int64)
        limit = self.limit[order] / self.per_used
        use = CounterUse(0, self.window_ms, self.counter[order], self.time_ms[order], limit, charged_)
        used = use.used(period.interval_ms)
        total = max(period.intervals, len(used))
        mine = used[self.own[order] > 0]
        return {
            **known,
            "over": float((used > 1).sum() / total),
            "full": _percentiles(used, total),
            "full_while_active": _percentiles(mine, len(mine)) if len(mine) else [],
        }


def _percentiles(values: Floats, total: int) -> list[float]:
    """Return PERCENTILES and the most of so many values, of which those that are not there are 0."""
    ranked = np.sort(values)
    places = [int(np.ceil(total * share - (total - len(ranked)))) - 1 for share in PERCENTILES.values()]
    return [*(0.0 if place < 0 else float(ranked[place]) for place in places), float(ranked[-1])]


def _same(one: Floats, other: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))
