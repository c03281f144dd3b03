"""From rows wherever they are to the seconds of whole units, each unit in one task: the one shuffle of a replay.

Only rows of units that are asked for travel, as numbers; in a task they become ``analysis.series``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.demand import Indices
from analysis.histogram import Floats
from analysis.recording import IDENTITY, Recording, active, enforced, interval_ms
from analysis.series import Cells, Recorded, Rows
from analysis.units import COLUMNS
from quotas.kinds import QuotaKind

_TASK_ROWS: Final = 2_000_000
"""Of one task, about; it also is what a task keeps before it adds up what falls into the same second."""
_LEAST_TASK_ROWS: Final = 50_000
"""Fewer are not worth a Python worker."""
_SAFELY: Final = 1.1
"""What rounding of intervals to a tenth of a second may add to a rate."""
_SENT: Final = ("series", "begin_ms", "interval_ms", "sent", "connections", "muted_ms", "throttled", "throttle_ms")


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
class Wanted:
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

    def only(self, units: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "Wanted":
        """Return them without the others; the numbers stay."""
        return Wanted(
            {kind: np.where((unit >= 0) & units[unit], unit, -1) for kind, unit in self.unit_of.items()}, self.units
        )


def gather(recording: Recording, wanted: Wanted, work: Work, schema: str) -> Any:
    """Return the Arrow table of all that ``work`` yields; ``schema`` as Spark writes it."""
    rows = wanted.sums(recording, "rows")
    if not rows.any():
        return pa.table({})
    spark = recording.rows.sparkSession
    series = _Series.of(recording, wanted)
    tasks = _tasks(int(rows.sum()), spark.sparkContext.defaultParallelism)
    task_of = _spread(rows, tasks)
    sent = reduce(
        DataFrame.unionByName, (_sent(recording, kind, series, task_of) for kind in wanted.unit_of)
    ).repartitionById(tasks, F.col("task"))
    requests = wanted.sums(recording, "requests")
    task = _Task(series.unit_of, requests, recording.circumstances.seconds, work)
    shared = spark.sparkContext.broadcast(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from shared.value.run(batches)

    try:
        return sent.select(*_SENT).mapInArrow(run, schema).toArrow()
    finally:
        shared.unpersist()


def _tasks(rows: int, at_once: int) -> int:
    return max(-(-rows // _TASK_ROWS), min(at_once, -(-rows // _LEAST_TASK_ROWS)))


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

    @classmethod
    def of(cls, recording: Recording, wanted: Wanted) -> "_Series":
        of_client = {}
        unit_of = [np.arange(wanted.units)]
        numbers = wanted.units
        for kind, unit in wanted.unit_of.items():
            alone = (unit >= 0) & (recording.used[kind].muted_s > 0)
            count = int(alone.sum())
            series = unit.copy()
            series[alone] = numbers + np.arange(count)
            of_client[kind] = series
            unit_of.append(unit[alone])
            numbers += count
        return cls(of_client, np.concatenate(unit_of))


def _sent(recording: Recording, kind: QuotaKind, series: _Series, task_of: Indices) -> DataFrame:
    """Return the rows of one kind that are wanted: ``task`` and _SENT."""
    columns = COLUMNS[kind]
    client = np.flatnonzero(series.of_client[kind] >= 0)
    number = series.of_client[kind][client]
    origins_ms = recording.circumstances.origins_ms
    dimension = recording.identities.take(pa.array(client))
    for name, values in {
        "series": pa.array(number, pa.int32()),
        "task": pa.array(task_of[series.unit_of[number]], pa.int32()),
        "origin_ms": pa.array([origins_ms[recording.clients[each].instance] for each in client.tolist()], pa.int64()),
    }.items():
        dimension = dimension.append_column(name, values)
    rows = recording.rows
    spark = rows.sparkSession
    values = {
        "begin_ms": (F.unix_millis("time") - F.col("origin_ms")).cast("long"),
        "interval_ms": interval_ms().cast("int"),
        "sent": F.col(columns.used).cast("long"),
        "connections": F.col("connections").cast("int"),
        "muted_ms": enforced(str(columns.muted_ms)).cast("long"),
        "throttled": enforced(str(columns.throttled)).cast("long"),
        "throttle_ms": enforced(str(columns.throttle_ms)).cast("long"),
    }
    joined = rows.where(active(columns)).join(F.broadcast(spark.createDataFrame(dimension)), [*IDENTITY])
    return joined.select("task", "series", *(value.alias(name) for name, value in values.items()))


@dataclass(frozen=True, slots=True)
class _Task:
    """What a worker needs to know, and does."""

    unit_of_series: Indices
    requests: Floats
    seconds: int
    work: Work

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take all rows of some units, and work on them."""
        cells = Cells.none()
        throttles: list[Sequence[Floats]] = []
        waiting: list[tuple[Floats, ...]] = []
        rows = 0
        for batch in batches:
            columns = tuple(column.to_numpy(zero_copy_only=False) for column in batch.columns)
            given = columns[6] > 0
            if given.any():
                throttles.append([column[given] for column in (columns[0], columns[7], columns[6])])
            waiting.append(columns[:6])
            rows += batch.num_rows
            if rows >= _TASK_ROWS:
                cells = cells.plus(_cells(waiting))
                waiting, rows = [], 0
        if waiting:
            cells = cells.plus(_cells(waiting))
            waiting = []
        if len(cells.number):
            yield from self.work(self._gathered(cells, throttles))

    def _gathered(self, cells: Cells, throttles: list[Sequence[Floats]]) -> Gathered:
        """Number the units of this task from 0, and their series too."""
        series, numbers = np.unique(cells.number, return_inverse=True)
        units, unit_of = np.unique(self.unit_of_series[series], return_inverse=True)
        local = Cells(numbers, cells.second, cells.sent_bytes, cells.connections, cells.muted_s)
        recorded = Recorded.of(local, unit_of, self.requests[units], self.seconds)
        if not throttles:
            nothing = np.zeros(0)
            return Gathered(units, recorded, Throttles(nothing.astype(np.intp), nothing, nothing))
        number, throttle_ms, requests = (np.concatenate(column) for column in zip(*throttles, strict=True))
        unit = np.searchsorted(units, self.unit_of_series[number])
        return Gathered(units, recorded, Throttles(unit, throttle_ms / requests / 1000, requests.astype(float)))


def _cells(waiting: list[tuple[Floats, ...]]) -> Cells:
    number, begin_ms, interval_ms, sent, connections, muted_ms = (
        np.concatenate(column) for column in zip(*waiting, strict=True)
    )
    return Cells.of(
        Rows(
            number.astype(np.intp),
            begin_ms.astype(np.intp),
            interval_ms.astype(np.intp),
            sent.astype(float),
            connections.astype(float),
            muted_ms.astype(float),
        )
    )
