"""A table that was made of rows: in this process, or as Parquet files on this machine, a part at a time.

What workers make of rows comes here as files, whole: Spark moves a few large binary values. Of a table, however large,
no more than a part of a file need be in memory.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame

FILE_ROWS: Final = 200_000
NAMED: Final = pa.schema([("name", pa.string()), ("content", pa.binary())])
"""Files of several tables, by their names."""
_READ_ROWS: Final = 50_000
_FEW_TASKS: Final = 8
"""Of so many, what they made comes at once."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A table of ``schema``; no row is in two parts."""

    schema: pa.Schema
    parts: tuple[pa.Table | Path, ...] = ()
    bounds: tuple[tuple[str, Any, Any], ...] = ()
    """Columns, each with the least and the most (None: any) of the rows that are meant."""

    @classmethod
    def of(cls, table: pa.Table) -> "Parts":
        return cls(table.schema, (table,))

    @classmethod
    def gathered(cls, tables: Iterable[pa.Table], schema: pa.Schema) -> "Parts":
        """Return tables of ``schema`` as one: on the disk, where they are more than fit into a file."""
        found = contents(tables)
        first = list(islice(found, 2))
        if len(first) > 1:
            return cls(schema, tuple(map(_spooled, chain(first, found))))
        return cls(schema, tuple(pq.read_table(pa.BufferReader(content)) for content in first))

    def within(self, column: str, least: Any = None, most: Any = None) -> "Parts":
        """Return those rows that have at least, and at most, this in a column; None: any."""
        return replace(self, bounds=(*self.bounds, (column, least, most)))

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield some columns, or all, of so many rows at a time as fit into memory."""
        names = self.schema.names if columns is None else list(columns)
        read = list(dict.fromkeys((*names, *(column for column, _, _ in self.bounds))))
        for part in self.parts:
            for table in [part] if isinstance(part, pa.Table) else _of_file(part, read):
                yield self._meant(table).select(names)

    def _meant(self, table: pa.Table) -> pa.Table:
        for column, least, most in self.bounds:
            for bound, is_met in ((least, pc.greater_equal), (most, pc.less_equal)):
                if bound is not None:
                    table = table.filter(is_met(table[column], bound))
        return table

    def whole(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return some columns, or all, of all rows at once: for who knows that they are few."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return pa.concat_tables([schema.empty_table(), *self.tables(columns)])

    def __len__(self) -> int:
        return sum(map(len, self.tables([])))

    def contents(self) -> Iterator[bytes]:
        """Yield files of all rows; of none, too, there is one."""
        none = _content(self.schema.empty_table())
        if self.bounds:
            found = contents(self.tables())
        else:
            found = (_content(part) if isinstance(part, pa.Table) else part.read_bytes() for part in self.parts)
        first = next(found, none)
        yield from chain([first], found)


def _of_file(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, memory_map=True) as file:
        for batch in file.iter_batches(_READ_ROWS, columns=columns, use_threads=False):
            yield pa.Table.from_batches([batch])


def contents(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yield files of up to FILE_ROWS rows of tables of one schema; none where there are no rows."""
    waiting: list[pa.Table] = []
    for table in tables:
        for at in range(0, len(table), FILE_ROWS):
            waiting.append(table.slice(at, FILE_ROWS))
            if sum(map(len, waiting)) >= FILE_ROWS:
                yield _content(pa.concat_tables(waiting))
                waiting = []
    if waiting:
        yield _content(pa.concat_tables(waiting))


def _content(table: pa.Table) -> bytes:
    file = pa.BufferOutputStream()
    pq.write_table(table, file, compression="zstd")
    return bytes(file.getvalue())


def named(name: str, content: bytes) -> pa.RecordBatch:
    """Return NAMED of one file."""
    return pa.RecordBatch.from_arrays([pa.array([name]), pa.array([content], pa.binary())], schema=NAMED)


def brought(files: DataFrame, schemas: Mapping[str, pa.Schema], tasks: int) -> dict[str, Parts]:
    """Return tables that ``tasks`` tasks made, NAMED: they come to this machine's disk, a task's at a time if many."""
    parts: dict[str, list[Path]] = {name: [] for name in schemas}
    if tasks <= _FEW_TASKS:
        for batch in files.toArrow().to_batches():
            for name, content in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                parts[name].append(_spooled(content.as_buffer()))
    else:
        kept = files.persist(StorageLevel.DISK_ONLY)
        try:
            kept.count()  # by all workers at the same time, which an iterator would not have them do
            for row in kept.toLocalIterator():
                parts[row.name].append(_spooled(row.content))
        finally:
            kept.unpersist()
    return {name: Parts(schema, tuple(parts[name])) for name, schema in schemas.items()}


def _spooled(content: bytes | pa.Buffer) -> Path:
    path = Path(_spool().name, uuid4().hex)
    path.write_bytes(content)
    return path


@cache
def _spool() -> "tempfile.TemporaryDirectory[str]":
    """Return where files are until this program ends."""
    return tempfile.TemporaryDirectory(prefix="sluice-tables-")
