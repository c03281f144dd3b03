"""Rows of usage where they are worked on: whole files, opened in Python workers as Arrow tables.

Spark finds the files, reads them from wherever Hadoop reaches, and hands each to a worker as it is; what is on a disk,
workers open by themselves. Rows that Spark itself decodes and hands over cost twenty times as much.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.errors import AnalysisError
from analysis.table.parquet import decode, joined
from analysis.table.schema import TIME
from analysis.table.swaps import set_aside

_TABLE_ROWS: Final = 500_000
"""Of a table that a worker is given, about: some 100 MB, which it has twice while it puts one together."""
FILES: Final = "path string, content binary"
PATH: Final = "path"
"""A column that no file has: the file that a row is in."""
ON_DISK: Final = "file:"

Work = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]
"""What a worker does with tables of one chunk, texts as dictionaries; it may yield such, with columns in any order."""


@dataclass(frozen=True, slots=True)
class UsageRows:
    """The rows of a period, in the files that hold them."""

    files: DataFrame
    """FILES; without ``content`` where each worker can open ``path``."""
    begin_us: int | None = None
    """Unix time: rows of intervals that begin before it are not meant."""
    end_us: int | None = None
    """Likewise, from it on."""
    nothing: str = "there are no usage records in the period"
    """What to say where no row is found."""
    around: "Callable[[], UsageRows] | None" = None
    """Returns the same with an hour more at both ends, for what is seen only beside what comes before or after; and
    with ``rejected``. None: these are all rows that there are."""
    rejected: DataFrame | None = None
    """What could not be read, of all time (``warehouse.rejected``); None: nothing, or nobody has asked."""
    wanted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Of each column that is named, the values that rows must have one of."""

    def only(self, **values: Sequence[Any]) -> "UsageRows":
        """Return those of the rows that have one of the values in each of the columns."""
        return replace(self, wanted={**self.wanted, **values})

    @property
    def spark(self) -> SparkSession:
        return self.files.sparkSession

    def scan(self, columns: Sequence[str], work: Work, schema: pa.Schema) -> DataFrame:
        """Return what ``work`` yields of the rows' ``columns`` (``schema.FILE``, PATH): the columns of ``schema``."""
        opened = _Opened(tuple(columns), self.begin_us, self.end_us, self.wanted)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in work(opened.tables(batches)):
                yield from table.select(schema.names).cast(schema).to_batches()

        return self.files.mapInArrow(run, from_arrow_schema(schema))


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
        for batch in batches:
            for file in range(batch.num_rows):
                path = batch.column(0)[file].as_py()
                try:
                    for table in decode(_content(batch, file), read, self.only):
                        yield _placed(self._within(table), path).select(self.columns)
                except (pa.ArrowException, OSError) as error:
                    raise AnalysisError(f"{path}: {error}") from error

    def _within(self, table: pa.Table) -> pa.Table:
        if self.begin_us is not None:
            table = table.filter(pc.greater_equal(table["time"], pa.scalar(self.begin_us, TIME)))
        if self.end_us is not None:
            table = table.filter(pc.less(table["time"], pa.scalar(self.end_us, TIME)))
        return table


def _placed(table: pa.Table, path: str) -> pa.Table:
    same = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), table.num_rows), [path])
    return table.append_column(PATH, same)


def _content(files: pa.RecordBatch, file: int) -> pa.Buffer:
    if files.num_columns > 1:
        return files.column(1)[file].as_buffer()
    path = Path(files.column(0)[file].as_py().removeprefix(ON_DISK))
    # Mapped, so that of columns that are not read nothing is.
    try:
        return pa.memory_map(str(path)).read_buffer()
    except FileNotFoundError:
        if (aside := set_aside(path)) is None:
            raise
        return pa.memory_map(str(aside)).read_buffer()
