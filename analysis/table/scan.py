"""Rows of usage where they are worked on: whole files, opened in Python workers as Arrow tables.

Spark finds the files, reads them from wherever Hadoop reaches, and hands each to a worker as it is; what is on a disk,
workers open by themselves. Rows that Spark itself decodes and hands over cost twenty times as much.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.errors import RunError
from analysis.table import summaries
from analysis.table.parquet import decode, joined
from analysis.table.schema import TIME
from analysis.table.swaps import set_aside

_TABLE_ROWS: Final = 50_000
"""Of a table that a worker is given, about: some 30 MB, which it has twice while it puts one together."""
FILES: Final = "path string, content binary"
PATH: Final = "path"
"""A column that no file has: the file that a row is in."""
ON_DISK: Final = "file:"

Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Work = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]
"""What a worker does with tables of one chunk, texts as dictionaries; it may yield such, with columns in any order."""


class OfDays(NamedTuple):
    """What is kept of days under a name, and what makes of it the same as other work makes of the days' rows."""

    name: str
    work: Work = iter


@dataclass(frozen=True, slots=True)
class KeptDays:
    """Days of which all is kept that a report needs (``summaries``)."""

    days: tuple[int, ...]
    """Since 1970, ascending."""
    files: Callable[[str], DataFrame]
    """Returns FILES of what is kept under a name; without ``content`` (null) where workers can open ``path``."""
    rest: DataFrame
    """FILES of the rows of other days."""
    rest_led_in: DataFrame
    """The same, with an hour more at both ends of the period, and before each day that is not kept."""


@dataclass(frozen=True, slots=True)
class UsageRows:
    """The rows of a period, in the files that hold them."""

    files: DataFrame | None
    """FILES; without ``content`` where each worker can open ``path``. None: all are ``at_hand``."""
    begin_us: int | None = None
    """Unix time: rows of intervals that begin before it are not meant."""
    end_us: int | None = None
    """Likewise, from it on."""
    nothing: str = "there are no usage records in the period"
    """What to say where no row is found."""
    around: "Callable[[], UsageRows] | None" = None
    """Returns the same with an hour more at both ends, for what is seen only beside what comes before or after; and
    with ``rejected``. None: these are all rows that there are."""
    since: "Callable[[datetime], UsageRows] | None" = None
    """Returns those from a time on. None: ``from_time`` leaves the others out as it reads them."""
    kept: KeptDays | None = None
    """Days that need not be read; None: none."""
    rejected: DataFrame | None = None
    """What could not be read, of all time (``warehouse.rejected``); None: nothing, or nobody has asked."""
    wanted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Of each column that is named, the values that rows must have one of."""
    at_hand: pa.Table | None = None
    """The files, brought here where they are few: then all work is done here, and no worker is started for it."""
    session: SparkSession | None = None
    """Of files that are at hand."""

    def only(self, **values: Sequence[Any]) -> "UsageRows":
        """Return those of the rows that have one of the values in each of the columns; what is kept is of all rows."""
        return replace(self, wanted={**self.wanted, **values}, kept=None)

    @property
    def spark(self) -> SparkSession:
        spark = self.session if self.files is None else self.files.sparkSession
        assert spark is not None  # noqa: S101  either is there
        return spark

    @property
    def kept_days(self) -> tuple[int, ...]:
        return () if self.kept is None else self.kept.days

    def paths(self) -> list[str]:
        """Return all files, those of days that are kept too."""
        files: Any = self.at_hand if self.files is None else self.files.select(PATH).toArrow()
        return [str(path) for path in files[PATH].to_pylist()]

    def from_time(self, begin: datetime) -> "UsageRows":
        """Return those of intervals that begin from a time on; all of them are read."""
        if self.since is not None:
            return self.since(begin)
        return replace(self, begin_us=round(begin.timestamp() * 1_000_000), kept=None)

    def scan(self, columns: Sequence[str], work: Work, schema: pa.Schema, of_days: OfDays | None = None) -> DataFrame:
        """Return what ``work`` yields of the rows' ``columns`` (``schema.FILE``, PATH): the columns of ``schema``.

        ``of_days``: rows of days of which this is kept are not read; without it, all are.
        """
        assert self.files is not None  # noqa: S101  else who asks works here
        opened = self._opened(columns)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return made(work(opened.tables(batches)), schema)

        if self.kept is None or of_days is None:
            return self.files.mapInArrow(run, from_arrow_schema(schema))

        def run_kept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return made(of_days.work(kept_tables(batches)), schema)

        known = self.kept.files(of_days.name).mapInArrow(run_kept, from_arrow_schema(schema))
        return self.kept.rest.mapInArrow(run, from_arrow_schema(schema)).unionByName(known)

    def work_here(self, columns: Sequence[str], work: Work, schema: pa.Schema) -> pa.Table:
        """Return the same as ``scan``, of files that are ``at_hand``."""
        return pa.Table.from_batches(made(work(self.tables_here(columns)), schema), schema)

    def tables_here(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of files that are ``at_hand``."""
        files: pa.Table = self.at_hand
        return self._opened(columns).tables(iter(files.to_batches()))

    def _opened(self, columns: Sequence[str]) -> "_Opened":
        return _Opened(tuple(columns), self.begin_us, self.end_us, self.wanted)


def rows_of(files: pa.Table) -> int:
    """Return how many rows files have that are at hand, by what they say of themselves. Raises RunError."""
    return sum(_rows(path, content) for path, content in _contents(iter(files.to_batches())))


def _rows(path: str, content: pa.Buffer) -> int:
    with _named(path):
        return int(pq.read_metadata(pa.BufferReader(content)).num_rows)


def kept_tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield what is kept of days (FILES of ``KeptDays``)."""
    for path, content in _contents(batches):
        with _named(path):
            yield from summaries.opened(content)


def made(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield what work yielded, as Spark takes it: the columns of ``schema``."""
    for table in tables:
        yield from table.select(schema.names).cast(schema).to_batches()


@dataclass(frozen=True, slots=True)
class _Opened:
    """Files that came to a worker."""

    columns: tuple[str, ...]
    begin_us: int | None
    end_us: int | None
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        waiting: list[pa.Table] = []
        rows = 0
        for table in self._groups(batches):
            waiting.append(table)
            rows += table.num_rows
            if rows >= _TABLE_ROWS:
                whole = joined(waiting)
                waiting, rows = [], 0
                yield whole
        if rows:
            yield joined(waiting)

    def _groups(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        read = [name for name in dict.fromkeys(("time", *self.columns)) if name != PATH]
        for path, content in _contents(batches):
            with _named(path):
                for table in decode(content, read, self.only, (self.begin_us, self.end_us)):
                    yield _placed(self._within(table), path).select(self.columns)

    def _within(self, table: pa.Table) -> pa.Table:
        if self.begin_us is not None:
            table = table.filter(pc.greater_equal(table["time"], pa.scalar(self.begin_us, TIME)))
        if self.end_us is not None:
            table = table.filter(pc.less(table["time"], pa.scalar(self.end_us, TIME)))
        return table


def _placed(table: pa.Table, path: str) -> pa.Table:
    same = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), table.num_rows), [path])
    return table.append_column(PATH, same)


def _contents(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Buffer]]:
    for batch in batches:
        for file in range(batch.num_rows):
            path = batch.column(0)[file].as_py()
            with _named(path):
                content = _content(batch, file)
            yield path, content


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Have an error say which file it is about."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{path}: {error}") from error


def _content(files: pa.RecordBatch, file: int) -> pa.Buffer:
    if files.num_columns > 1 and files.column(1)[file].is_valid:
        return files.column(1)[file].as_buffer()
    path = Path(files.column(0)[file].as_py().removeprefix(ON_DISK))
    # Mapped, so that of columns that are not read nothing is.
    try:
        return pa.memory_map(str(path)).read_buffer()
    except FileNotFoundError:
        if (aside := set_aside(path)) is None:
            raise
        return pa.memory_map(str(aside)).read_buffer()
