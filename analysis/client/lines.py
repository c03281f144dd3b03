"""One line of a plot, from intervals in a task: its steps, the changes of its limit, and how full the counter was."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.metrics.counter_use import CounterUse
from analysis.metrics.headroom import PERCENTILES
from analysis.metrics.period import Period
from analysis.metrics.runs import codes, values_of
from analysis.table.arrays import Floats, Ints, floats, ints

MOST_CHANGES: Final = 500
"""Of a limit, on one panel: the first ones."""


@dataclass(frozen=True, slots=True)
class Line:
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
    def of(cls, rows: pa.Table, per_used: float) -> "Line":
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
        used = use.used(period.interval_ms_at(use.time_ms))
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
    most = float(ranked[-1])
    ranked = values_of(codes(ranked))
    return [*(0.0 if place < 0 else min(float(ranked[place]), most) for place in places), most]


def _same(one: Floats, other: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))
