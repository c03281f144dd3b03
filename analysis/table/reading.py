"""One reading of rows for all tables that are made of them: their files are fetched and opened once, whatever is asked.

A worker hands each table of rows to everybody who keeps something of it (``Keeping``). What belongs together is sent
to one task, with what is kept of days already, and there becomes the tables that were asked for (``Making``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial, reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.table.arrays import DAY_MS, Bools, Fold, Ints, added, times_ms
from analysis.table.exchange import packed, tasks_for, unpacked
from analysis.table.parquet import encoded, joined, plain
from analysis.table.parts import NAMED, Parts, brought, contents, named
from analysis.table.scan import KeptDays, UsageRows, Work, kept_tables, made

_SENT: Final = pa.schema([("task", pa.int32()), ("name", pa.string()), ("rows", pa.binary())])


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
    finish: Work = iter
    """Makes ``schema`` of all that has reached a task."""
    rows: Rows = Rows.MEANT


@dataclass(frozen=True, slots=True)
class Making:
    """A table of ``schema`` that tasks make of what is kept of rows."""

    name: str
    keeping: Keeping
    work: Work
    """Makes it of all that has reached a task, of rows and of days that are kept; texts are dictionaries."""
    schema: pa.Schema


def adding(keys: Sequence[str], how: "dict[str, str]") -> Callable[[pa.Table], pa.Table]:
    """Return what adds up tables as ``arrays.added`` does."""
    return partial(added, keys=keys, how=how)


def tables(usage: UsageRows, makings: Sequence[Making], rows: int, lead_ms: int = 0) -> dict[str, Parts]:
    """Return tables by name, made in one reading of rows, and of days that are kept.

    ``rows`` is how many there are, about; ``lead_ms`` is the longest window.
    """
    reading = _Reading.of(usage, makings, rows, lead_ms)
    if reading.reader.at_hand is not None:
        received = _Received.of(reading.sent_here(), makings)
        return {each.name: Parts.gathered(received.made(each), each.schema) for each in makings}
    schemas = {each.name: each.schema for each in makings}
    return brought(reading.files(usage.kept), schemas, reading.send.tasks)


def files_of(usage: UsageRows, keepings: Sequence[Keeping], rows: int, lead_ms: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and Parquet files of what is kept of rows, but for days that are kept already."""
    makings = [Making(each.name, each, each.finish, each.schema) for each in keepings]
    reading = _Reading.of(usage, makings, rows, lead_ms)
    if reading.reader.at_hand is not None:
        received = _Received.of(reading.sent_here(), makings)
        for each in makings:
            yield from ((each.name, content) for content in contents(received.made(each)))
        return
    # All tasks at once, as they are; and then one file after the other into the driver.
    for row in reading.files(None).localCheckpoint().toLocalIterator():
        yield row.name, bytes(row.content)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Which rows are read, and what is made of them."""

    reader: UsageRows
    columns: tuple[str, ...]
    send: "_Send"
    makings: tuple[Making, ...]

    @classmethod
    def of(cls, usage: UsageRows, makings: Sequence[Making], rows: int, lead_ms: int) -> "_Reading":
        keepings = tuple({each.keeping.name: each.keeping for each in makings}.values())
        tasks = tasks_for(rows, usage.spark.sparkContext.defaultParallelism)
        reader = usage
        if any(each.rows is not Rows.MEANT for each in keepings):
            begin_us = None if usage.begin_us is None else usage.begin_us - 1000 * lead_ms
            wider = usage.around() if usage.around else replace(usage, begin_us=begin_us)
            reader = replace(wider, wanted=usage.wanted)
        if usage.kept is not None:
            reader = replace(reader, files=usage.kept.rest_led_in)
        choice = _Choice(usage.begin_us, usage.end_us, usage.kept_days, lead_ms)
        columns = tuple(dict.fromkeys(("time", *(name for each in keepings for name in each.columns))))
        return cls(replace(reader, kept=None), columns, _Send(keepings, choice, tasks), tuple(makings))

    def files(self, kept: KeptDays | None) -> DataFrame:
        """Return NAMED."""
        makings = self.makings

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            received = _Received.of(batches, makings)
            for each in makings:
                for content in contents(received.made(each)):
                    yield named(each.name, content)

        sent = [self.reader.scan(self.columns, self.send, _SENT)] if self.reader.files is not None else []
        sent += [] if kept is None else [self._of_days(kept, each) for each in self.send.keepings]
        together = reduce(DataFrame.unionByName, sent)
        return together.repartitionById(self.send.tasks, F.col("task")).mapInArrow(run, from_arrow_schema(NAMED))

    def _of_days(self, kept: KeptDays, keeping: Keeping) -> DataFrame:
        send = self.send

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return made(send.of_days(keeping.name, kept_tables(batches)), _SENT)

        return kept.files(keeping.name).mapInArrow(run, from_arrow_schema(_SENT))

    def sent_here(self) -> Iterator[pa.RecordBatch]:
        """Yield what is sent of files that are at hand."""
        return iter(self.reader.work_here(self.columns, self.send, _SENT).to_batches())


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

    def of_days(self, name: str, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Send what is kept of days under a name."""
        [number] = [number for number, each in enumerate(self.keepings) if each.name == name]
        for table in tables:
            yield from self._sent(number, table)

    def _sent(self, number: int, part: pa.Table) -> Iterator[pa.Table]:
        if not len(part):
            return
        keeping = self.keepings[number]
        # Those that go to one task as a whole go to different ones.
        task = np.full(len(part), number) if keeping.of_task is None else keeping.of_task(part)
        if keeping.finish is iter:
            # What rows say and what is kept of days are one table, for those that do not look at each by itself.
            part = plain(part).select(keeping.schema.names).cast(keeping.schema)
        for piece in packed(part, task % self.tasks):
            yield piece.append_column("name", pa.array([keeping.name] * len(piece)))


class _Received:
    """What has reached a task, by the names of what is kept."""

    def __init__(self, makings: Sequence[Making]) -> None:
        self._tables: dict[str, list[pa.Table]] = {each.keeping.name: [] for each in makings}
        self._folds = {each.keeping.name: Fold(each.keeping.add) for each in makings if each.keeping.add is not None}

    @classmethod
    def of(cls, batches: Iterator[pa.RecordBatch], makings: Sequence[Making]) -> "_Received":
        """Take all, _SENT."""
        received = cls(makings)
        for batch in batches:
            names = batch.column(batch.schema.get_field_index("name")).to_pylist()
            for name, table in zip(names, unpacked(iter([batch])), strict=True):
                if name in received._folds:
                    received._folds[name].take(encoded(table))
                else:
                    received._tables[name].append(encoded(table))
        for name, fold in received._folds.items():
            received._tables[name] = list(fold.end())
        return received

    def made(self, making: Making) -> Iterator[pa.Table]:
        """Yield a table, as its schema says."""
        for table in making.work(iter(self._tables[making.keeping.name])):
            yield plain(table.select(making.schema.names)).cast(making.schema)
