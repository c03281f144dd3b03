"""From rows wherever they are to the seconds of whole units, each unit in one task: the one shuffle of a replay.

Only rows of units that are asked for travel, as numbers; in a task they become ``analysis.kernel.series``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.refusals import Rows
from analysis.kernel.series import Recorded
from analysis.kernel.units import COLUMNS
from analysis.replay.recording import Recording
from analysis.replay.sending import SENT_OF_REFUSING, Sender
from analysis.table.exchange import TASK_ROWS, exchange, tasks_for
from quotas.kinds import QuotaKind

_SAFELY: Final = 1.1
"""What rounding of intervals to a tenth of a second may add to a rate."""
_WAITING_ROWS: Final = 2**17
"""That become cells at once: some 20 MB meanwhile."""
_USE: Final = ("series", "begin_ms", "interval_ms", "sent", "muted_ms")
"""What a task needs of all rows (``sending.SENT``)."""


@dataclass(frozen=True, slots=True)
class Throttles:
    """Throttle times that were given while recorded: of each row with any their mean, and how many there were."""

    unit: Indices
    throttle_s: Floats
    requests: Floats


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one task has got."""

    units: Indices
    """By the numbers that were asked for, ascending."""
    recorded: Recorded
    """Of these units, numbered from 0."""
    throttles: Throttles
    """Likewise."""


Work = Callable[[Gathered], Iterator[pa.RecordBatch]]
"""What a task does. It travels to the workers: a function of a module, or a dataclass that can be called."""


@dataclass(frozen=True, slots=True)
class Units:
    """Units, by number, and whose rows they are made of."""

    unit_of: Mapping[QuotaKind, Indices]
    """[client], -1 for none. Units of different kinds have different numbers."""
    units: int

    def sums(self, recording: Recording, name: str) -> Floats:
        """Return [unit] the sums of an array of ``recording.Used``."""
        total = np.zeros(self.units)
        for kind, unit in self.unit_of.items():
            chosen = unit >= 0
            total += np.bincount(unit[chosen], getattr(recording.used[kind], name)[chosen], self.units)
        return total

    def most_bytes(self, recording: Recording, window_s: float) -> Floats:
        """Return what each unit surely does not exceed in any window of so many seconds."""
        total = np.zeros(self.units)
        for kind, unit in self.unit_of.items():
            used = recording.used[kind]
            chosen = unit >= 0
            most = np.minimum(used.sent_bytes, used.peak_bytes_per_s * _SAFELY * (window_s + 1))
            total += np.bincount(unit[chosen], most[chosen], self.units)
        return total

    def of_kinds(self, kinds: Collection[QuotaKind]) -> "Units":
        """Return those of some kinds; the numbers stay."""
        return Units({kind: unit for kind, unit in self.unit_of.items() if kind in kinds}, self.units)

    def only(self, units: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "Units":
        """Return them without the others; the numbers stay."""
        return Units(
            {kind: np.where((unit >= 0) & units[unit], unit, -1) for kind, unit in self.unit_of.items()}, self.units
        )


def gather(recording: Recording, wanted: Units, work: Work, together: Indices | None = None) -> pa.Table:
    """Return all that ``work`` yields; without a column where that is nothing.

    ``together`` [unit]: those with the same number, from 0, are gathered in the same task.
    """
    rows = wanted.sums(recording, "rows")
    if not rows.any():
        return pa.table({})
    series = _Series.of(recording, wanted)
    tasks = tasks_for(int(rows.sum()), recording.usage.spark.sparkContext.defaultParallelism)
    spread = (
        _spread(rows, tasks)
        if together is None
        else _spread(np.bincount(together, rows).astype(float), tasks)[together]
    )
    sender = Sender.of(recording, series.of_client, spread[series.unit_of])
    task = _Task(
        series.unit_of, series.per_used, wanted.sums(recording, "requests"), recording.circumstances.seconds, work
    )
    return _collect(recording, sender, task, tasks)


RefusalWork = Callable[[int, Rows, Floats], Iterator[pa.RecordBatch]]
"""What a task does with one unit of a kind that refuses: its number, its rows, and how much of each was refused."""


def gather_refusing(recording: Recording, wanted: Units, work: RefusalWork) -> pa.Table:
    """As ``gather``, of kinds whose law refuses: with rows as they were recorded, a unit after the other."""
    rows = wanted.sums(recording, "rows")
    if not rows.any():
        return pa.table({})
    tasks = tasks_for(int(rows.sum()), recording.usage.spark.sparkContext.defaultParallelism)
    sender = Sender.of(recording, wanted.unit_of, _spread(rows, tasks), SENT_OF_REFUSING)
    return _collect(recording, sender, _RefusalTask(work), tasks)


def _collect(recording: Recording, sender: Sender, task: "_Task | _RefusalTask", tasks: int) -> pa.Table:
    """Send the rows to as many tasks, and return what these make of them."""
    context = recording.usage.spark.sparkContext
    sending, receiving = context.broadcast(sender), context.broadcast(task)

    def sent(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        yield from sending.value.sent(tables)

    def received(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        yield from receiving.value.run(tables)

    try:
        return exchange(recording.usage, sender.columns, sent, tasks).collect(received)
    finally:
        sending.unpersist()
        receiving.unpersist()


@dataclass(frozen=True, slots=True)
class _RefusalTask:
    """What a worker does with all rows of some units."""

    work: RefusalWork

    def run(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        found = list(tables)
        if not found:
            return
        names = ("series", "begin_ms", "interval_ms", "sent", "requests", "muted_ms", "throttled")
        rows = pa.concat_tables(found)
        unit, begin_ms, *others = (rows[name].to_numpy() for name in names)
        order = np.lexsort((begin_ms, unit))
        unit, begin_ms = unit[order].astype(np.intp), begin_ms[order].astype(np.intp)
        interval_ms, sent, requests, muted_ms, throttled = (each[order] for each in others)
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(unit)], strict=True):
            part = slice(first, last)
            mine = Rows(
                begin_ms[part],
                interval_ms[part].astype(np.intp),
                sent[part].astype(float),
                requests[part].astype(np.intp),
                muted_ms[part].astype(float),
            )
            for batch in self.work(int(unit[first]), mine, throttled[part].astype(float)):
                yield pa.Table.from_batches([batch])


def _spread(rows: Floats, tasks: int) -> Indices:
    """Return the task of each unit: the largest first, to and fro."""
    order = np.argsort(-rows, kind="stable")
    turn = np.arange(len(rows)) % (2 * tasks)
    task = np.empty(len(rows), dtype=np.intp)
    task[order] = np.minimum(turn, 2 * tasks - 1 - turn)
    return task


@dataclass(frozen=True, slots=True)
class _Series:
    """What is kept apart: whoever was held up by itself, all others of a unit together."""

    of_client: Mapping[QuotaKind, Indices]
    unit_of: Indices
    per_used: Floats
    """[series]: how many units of the limit one of what rows count is."""

    @classmethod
    def of(cls, recording: Recording, wanted: Units) -> "_Series":
        of_client = {}
        unit_of = [np.arange(wanted.units)]
        per_used = np.ones(wanted.units)
        numbers = wanted.units
        for kind, unit in wanted.unit_of.items():
            alone = (unit >= 0) & (recording.used[kind].muted_s > 0)
            count = int(alone.sum())
            series = unit.copy()
            series[alone] = numbers + np.arange(count)
            of_client[kind] = series
            unit_of.append(unit[alone])
            per_used[unit[unit >= 0]] = COLUMNS[kind].per_used
            numbers += count
        units = np.concatenate(unit_of)
        return cls(of_client, units, per_used[units])


@dataclass(frozen=True, slots=True)
class _Task:
    """What a worker needs to know, and does."""

    unit_of_series: Indices
    per_used: Floats
    """[series]."""
    requests: Floats
    seconds: int
    work: Work

    def run(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Take all rows of some units, and work on them."""
        gathered = self._taken(tables)
        if gathered is not None:
            for batch in self.work(gathered):
                yield pa.Table.from_batches([batch])

    def _taken(self, tables: Iterator[pa.Table]) -> Gathered | None:
        throttles: list[Sequence[Floats]] = []
        found: list[Cells] = []
        waiting: list[pa.Table] = []
        for table in tables:
            throttled = table.filter(pc.greater(table["throttled"], 0))
            if throttled.num_rows:
                throttles.append([throttled[name].to_numpy() for name in ("series", "throttle_ms", "throttled")])
            waiting.append(table.select(_USE))
            if sum(map(len, waiting)) >= _WAITING_ROWS:
                found.append(_cells(waiting))
                waiting = []
                if sum(len(cells.number) for cells in found[1:]) >= TASK_ROWS:
                    found = [Cells.none().plus(*found)]
        if waiting:
            found.append(_cells(waiting))
            waiting = []
        cells = Cells.none().plus(*found)
        del found
        return self._gathered(cells, throttles) if len(cells.number) else None

    def _gathered(self, cells: Cells, throttles: list[Sequence[Floats]]) -> Gathered:
        """Number the units of this task from 0, and their series too."""
        is_first = np.diff(cells.number, prepend=-1) > 0
        series, numbers = cells.number[is_first], np.cumsum(is_first) - 1
        units, unit_of = np.unique(self.unit_of_series[series], return_inverse=True)
        local = Cells(numbers, cells.second, cells.sent_bytes * self.per_used[cells.number], cells.muted_s)
        recorded = Recorded.of(local, unit_of, self.requests[units], self.seconds)
        if not throttles:
            nothing = np.zeros(0)
            return Gathered(units, recorded, Throttles(nothing.astype(np.intp), nothing, nothing))
        number, throttle_ms, requests = (np.concatenate(column) for column in zip(*throttles, strict=True))
        unit = np.searchsorted(units, self.unit_of_series[number])
        return Gathered(units, recorded, Throttles(unit, throttle_ms / requests / 1000, requests.astype(float)))


def _cells(tables: Sequence[pa.Table]) -> Cells:
    use = pa.concat_tables(tables)
    number, begin_ms, interval_ms = (use[name].to_numpy().astype(np.intp) for name in _USE[:3])
    sent, muted_ms = (use[name].to_numpy().astype(float) for name in _USE[3:])
    return Cells.of(SeriesRows(number, begin_ms, interval_ms, sent, muted_ms))
