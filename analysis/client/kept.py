"""Rows that are read once from all there are, and kept for whatever else is asked of them: as small files in Spark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel

from analysis.table.arrays import Ints
from analysis.table.parquet import encode, joined
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

_FILES: Final = pa.schema([("path", pa.string()), ("content", pa.binary())])
_FILE_ROWS: Final = 500_000
"""Of one file, about: some 10 MB."""

Mask = Callable[[pa.Table], Ints]
"""Returns which rows of a table are kept."""


def keep(usage: UsageRows, mask: Mask | None = None) -> UsageRows:
    """Return the rows (of those that ``mask`` chooses), read when they are first asked for and never again.

    They take memory, or disk, of Spark's workers until ``release``.
    """
    if usage.at_hand is not None:
        kept = usage.work_here(FILE.names, _Encode(mask), _FILES)
        return UsageRows(None, nothing=usage.nothing, at_hand=kept, session=usage.spark)
    files = usage.scan(FILE.names, _Encode(mask), _FILES).persist(StorageLevel.MEMORY_AND_DISK)
    return UsageRows(files, nothing=usage.nothing)


def release(usage: UsageRows) -> None:
    """Give back what kept rows take."""
    if usage.files is not None:
        usage.files.unpersist()


@dataclass(frozen=True, slots=True)
class _Encode:
    mask: Mask | None

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        waiting: list[pa.Table] = []
        for table in tables:
            chosen = table if self.mask is None else table.filter(pa.array(self.mask(table)))
            if len(chosen):
                waiting.append(chosen)
            if sum(map(len, waiting)) >= _FILE_ROWS:
                yield _file(waiting)
                waiting = []
        if waiting:
            yield _file(waiting)


def _file(tables: list[pa.Table]) -> pa.Table:
    content = encode(joined(tables))
    return pa.table([pa.array(["kept"], pa.string()), pa.array([content], pa.binary())], schema=_FILES)
