"""One reading of rows for all that is kept of them: their files are fetched and opened once, whatever is asked.

A worker hands each table of rows to everybody who keeps something of it (``Keeping``). What belongs together is sent
to one task, and ends as files there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.table.arrays import DAY_MS, Bools, Fold, Ints, added, times_ms
from analysis.table.exchange import packed, tasks_for, unpacked
from analysis.table.parquet import encoded, joined, plain
from analysis.table.parts import FILE_ROWS, contents
from analysis.table.scan import PATH, KeptDays, UsageRows, Work, made

_SENT: Final = pa.schema([("task", pa.int32()), ("name", pa.string()), ("rows", pa.binary())])
_FILES: Final = pa.schema([("name", pa.string()), ("content", pa.binary())])


class Rows(Enum):
    """Which rows somebody needs."""

    MEANT = "of the period, and of days that are not kept yet"
    LED_IN = "these, and those of the longest window before"
    AROUND = "these, and those of an hour before and after the period"


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of rows under a ``name``: tables of ``schema``."""

    name: str
    columns: tuple[str, ...]
    parts: Work
    """Makes of each table of rows, by itself, tables to keep; texts may be dictionaries."""
    schema: pa.Schema
    add: Callable[[pa.Table], pa.Table] | None = None
    """Adds up what such tables say; None: they stay apart."""
    of_task: Callable[[pa.Table], Ints] | None = None
    """Returns numbers of the rows of a part: of the same number are those that belong together. None: all do."""
    finish: Work | None = None
    """Makes ``schema`` of all that has reached a task; None: it is that already."""
    rows: Rows = Rows.MEANT


def adding(keys: Sequence[str], how: "dict[str, str]") -> Callable[[pa.Table], pa.Table]:
    """Return what adds up tables as ``arrays.added`` does."""
    return partial(added, keys=keys, how=how)


@contextmanager
def read_once(usage: UsageRows, keepings: Sequence[Keeping], rows: int, lead_ms: int) -> Iterator[UsageRows]:
    """Have the same rows with all that is kept of them: whoever takes what is kept reads none of them again.

    Of files that are at hand nothing is kept: they are read as often. ``rows`` is how many there are, about;
    ``lead_ms`` is the longest window.
    """
    if usage.at_hand is not None:
        yield usage
        return
    found = _Reading.of(usage, keepings, rows, lead_ms).files().persist(StorageLevel.DISK_ONLY)
    try:
        found.count()
        stored, names = usage.kept, {each.name for each in keepings}

        def files(name: str) -> DataFrame:
            if name not in names:
                raise KeyError(name)
            new = found.where(F.col("name") == name).select(F.col("name").alias(PATH), "content")
            return new if stored is None else new.unionByName(stored.files(name), allowMissingColumns=True)

        kept = KeptDays(usage.kept_days, files)
        around = usage.around
        yield replace(usage, kept=kept, around=around and (lambda: replace(around(), kept=kept)))
    finally:
        found.unpersist()


def files_of(usage: UsageRows, keepings: Sequence[Keeping], rows: int, lead_ms: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and Parquet files of what is kept of rows, but for days that are kept already."""
    reading = _Reading.of(usage, keepings, rows, lead_ms)
    if reading.reader.at_hand is not None:
        found = reading.here()
    else:
        # All tasks at once, as they are; and then one file after the other into the driver.
        found = ((row.name, row.content) for row in reading.files().localCheckpoint().toLocalIterator())
    for name, content in found:
        yield name, bytes(content)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Which rows are read, and what is made of them."""

    reader: UsageRows
    columns: tuple[str, ...]
    send: "_Send"
    receive: "_Receive"

    @classmethod
    def of(cls, usage: UsageRows, keepings: Sequence[Keeping], rows: int, lead_ms: int) -> "_Reading":
        tasks = tasks_for(rows, usage.spark.sparkContext.defaultParallelism)
        wider = usage.around() if usage.around else usage
        rest = None if usage.kept is None else usage.kept.rest_led_in
        reader = replace(wider, files=wider.files if rest is None else rest, kept=None)
        choice = _Choice(usage.begin_us, usage.end_us, usage.kept_days, lead_ms)
        columns = tuple(dict.fromkeys(("time", *(name for each in keepings for name in each.columns))))
        send = _Send(tuple(keepings), choice, tasks)
        return cls(reader, columns, send, _Receive({each.name: each for each in keepings}))

    def files(self) -> DataFrame:
        """Return _FILES."""
        receive = self.receive

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return made(receive(batches), _FILES)

        sent = self.reader.scan(self.columns, self.send, _SENT)
        return sent.repartitionById(self.send.tasks, F.col("task")).mapInArrow(run, from_arrow_schema(_FILES))

    def here(self) -> Iterator[tuple[str, bytes]]:
        """Yield the same of files that are at hand."""
        sent = self.reader.work_here(self.columns, self.send, _SENT)
        for file in self.receive(iter(sent.to_batches())):
            yield from zip(file["name"].to_pylist(), file["content"].to_pylist(), strict=True)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which rows are whose."""

    begin_us: int | None
    end_us: int | None
    kept: tuple[int, ...]
    lead_ms: int

    def of(self, table: pa.Table) -> dict[Rows, pa.Table]:
        time_ms = times_ms(table)
        is_new = ~np.isin(time_ms // DAY_MS, np.array(self.kept, dtype=np.int64))
        return {
            Rows.MEANT: _only(table, self._is_within(table, 0) & is_new),
            Rows.LED_IN: _only(table, self._is_within(table, self.lead_ms)),
            Rows.AROUND: _only(table, is_new),
        }

    def _is_within(self, table: pa.Table, lead_ms: int) -> Bools:
        time_us = np.asarray(table["time"].cast(pa.int64()).to_numpy())
        chosen = np.ones(len(time_us), dtype=bool)
        if self.begin_us is not None:
            chosen &= time_us >= self.begin_us - 1000 * lead_ms
        if self.end_us is not None:
            chosen &= time_us < self.end_us
        return chosen


def _only(table: pa.Table, chosen: Bools) -> pa.Table:
    return table if chosen.all() else joined([table.filter(pa.array(chosen))])


@dataclass(frozen=True, slots=True)
class _Send:
    """From tables of rows to _SENT."""

    keepings: tuple[Keeping, ...]
    choice: _Choice
    tasks: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        folds = [None if each.add is None else Fold(each.add) for each in self.keepings]
        for table in tables:
            chosen = self.choice.of(table)
            for number, (each, fold) in enumerate(zip(self.keepings, folds, strict=True)):
                rows = chosen[each.rows]
                for part in each.parts(iter([rows.select(each.columns)] if len(rows) else [])):
                    if fold is None:
                        yield from self._sent(number, part)
                    else:
                        fold.take(part)
        for number, fold in enumerate(folds):
            for part in () if fold is None else fold.end():
                yield from self._sent(number, part)

    def _sent(self, number: int, part: pa.Table) -> Iterator[pa.Table]:
        if not len(part):
            return
        keeping = self.keepings[number]
        # Those that go to one task as a whole go to different ones.
        task = np.full(len(part), number) if keeping.of_task is None else keeping.of_task(part)
        for piece in packed(part, task % self.tasks):
            yield piece.append_column("name", pa.array([keeping.name] * len(piece)))


@dataclass(frozen=True, slots=True)
class _Receive:
    """From _SENT to _FILES."""

    keepings: dict[str, Keeping]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        files: dict[str, _Files] = {}
        for batch in batches:
            names = batch.column(batch.schema.get_field_index("name")).to_pylist()
            for name, table in zip(names, unpacked(iter([batch])), strict=True):
                if name not in files:
                    files[name] = _Files(self.keepings[name])
                yield from files[name].take(encoded(table))
        for each in files.values():
            yield from each.end()


class _Files:
    """What is kept under one name, of one task."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._fold = None if keeping.add is None else Fold(keeping.add)
        self._waiting: list[pa.Table] = []

    def take(self, table: pa.Table) -> Iterator[pa.Table]:
        if self._fold is not None:
            self._fold.take(table)
            return
        self._waiting.append(table)
        if self._keeping.finish is None and sum(map(len, self._waiting)) >= FILE_ROWS:
            yield from self.end()
            self._waiting = []

    def end(self) -> Iterator[pa.Table]:
        tables = iter(self._waiting) if self._fold is None else self._fold.end()
        schema = self._keeping.schema
        found = [plain(each.select(schema.names)).cast(schema) for each in (self._keeping.finish or iter)(tables)]
        for content in contents(found):
            yield pa.table([[self._keeping.name], pa.array([content], pa.binary())], schema=_FILES)
