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
from analysis.client.lines import Line
from analysis.metrics.counters import PER_USED
from analysis.metrics.period import Period
from analysis.table.arrays import Floats, Ints, added, floats, ints
from analysis.table.exchange import exchange, packed
from analysis.table.scan import UsageRows

MOST_POINTS: Final = 1000
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
            line = Line.of(rows.slice(first, last - first), self.per_used[number])
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
