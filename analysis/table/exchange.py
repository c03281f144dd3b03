"""Rows as Arrow tables that travel in one piece: between tasks, and to the driver.

Spark moves a few large binary values, as they are. Rows that it takes apart, and puts together again, cost twenty
times as much.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.table.arrays import folded, together
from analysis.table.parquet import encoded, plain
from analysis.table.parts import NAMED, Parts, brought, contents, named
from analysis.table.scan import OfDays, Run, UsageRows, Work, made

PACKED: Final = pa.schema([("task", pa.int32()), ("rows", pa.binary())])
"""``rows`` are an Arrow stream of a table, for ``task``."""
TASK_ROWS: Final = 2_000_000
"""Of one task, about."""
_LEAST_TASK_ROWS: Final = 50_000
"""Fewer are not worth a Python worker."""
_PIECE_ROWS: Final = 200_000
"""Of one stream, at most: some 10 MB."""


def tasks_for(rows: int, at_once: int) -> int:
    """Return into how many tasks so many rows are parted, where ``at_once`` can run."""
    return max(-(-rows // TASK_ROWS), min(at_once, -(-rows // _LEAST_TASK_ROWS)), 1)


def packed(table: pa.Table, task: NDArray[np.integer[Any]]) -> Iterator[pa.Table]:
    """Yield PACKED of a table, [row] each for its task. Texts travel as they are: a dictionary has names of others."""
    order = np.argsort(task, kind="stable")
    tasks, rows = np.unique(task, return_counts=True)
    for number, count, end in zip(tasks.tolist(), rows, np.cumsum(rows), strict=True):
        for at in range(end - count, end, _PIECE_ROWS):
            yield _one(table.take(pa.array(order[at : min(at + _PIECE_ROWS, end)])), number)


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the tables that are in PACKED."""
    for batch in batches:
        for rows in batch.column(batch.schema.get_field_index("rows")):
            yield pa.ipc.open_stream(rows.as_buffer()).read_all()


@dataclass(frozen=True, slots=True)
class Exchange:
    """What reached ``tasks`` tasks, each all that was for it."""

    usage: UsageRows
    columns: tuple[str, ...]
    work: Work
    """To PACKED."""
    tasks: int

    def parts(self, work: Work, schema: pa.Schema) -> Parts:
        """Return what ``work`` yields of what a task has got, as ``schema``.

        ``work`` gets texts as dictionaries, as in ``scan``.
        """
        if self.usage.at_hand is not None:
            return Parts.of(pa.Table.from_batches(made(work(self._here()), schema), schema))

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            tables = work(map(encoded, unpacked(batches)))
            for content in contents(map(pa.Table.from_batches, ([each] for each in made(tables, schema)))):
                yield named("", content)

        return brought(self._received(run, NAMED), {"": schema}, self.tasks)[""]

    def collect(self, work: Work) -> pa.Table:
        """Return all that ``work`` yields of what a task has got; without a column where that is nothing."""
        if self.usage.at_hand is not None:
            tables = list(work(self._here()))
        else:

            def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return made(_packing(work(map(encoded, unpacked(batches)))), PACKED)

            tables = list(unpacked(iter(self._received(run, PACKED).toArrow().to_batches())))
        return pa.concat_tables(map(plain, tables)) if tables else pa.table({})

    def _received(self, run: Run, schema: pa.Schema) -> DataFrame:
        sent = self.usage.scan(self.columns, self.work, PACKED)
        return sent.repartitionById(self.tasks, F.col("task")).mapInArrow(run, from_arrow_schema(schema))

    def _here(self) -> Iterator[pa.Table]:
        """Yield what all tasks have got, as one."""
        sent = self.usage.work_here(self.columns, self.work, PACKED)
        return map(encoded, unpacked(iter(sent.to_batches())))


def collected(
    usage: UsageRows,
    columns: Sequence[str],
    work: Work,
    schema: pa.Schema,
    add: Callable[[pa.Table], pa.Table] | None = None,
    of_days: OfDays | None = None,
) -> pa.Table:
    """Return what ``work`` yields of tables of rows, as ``schema``, here: of what is small.

    ``add`` adds up what workers have sent, as it adds up what each yields.
    """
    if usage.at_hand is not None:
        tables = work(usage.tables_here(columns))
    else:
        packing = None if of_days is None else OfDays(of_days.name, _Packing(of_days.work))
        tables = unpacked(iter(usage.scan(columns, _Packing(work), PACKED, packing).toArrow().to_batches()))
    alike = (plain(table.select(schema.names)).cast(schema) for table in tables)
    return together(alike if add is None else folded(alike, add), schema)


@dataclass(frozen=True, slots=True)
class _Packing:
    work: Work

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return _packing(self.work(tables))


def _packing(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return (_one(table, 0) for table in tables if len(table))


def exchange(usage: UsageRows, columns: Sequence[str], work: Work, tasks: int) -> Exchange:
    """Send what ``work`` makes of tables of rows, PACKED, to ``tasks`` tasks."""
    return Exchange(usage, tuple(columns), work, tasks)


def _one(table: pa.Table, task: int) -> pa.Table:
    table = plain(table)
    stream = pa.BufferOutputStream()
    # Java has several copies of it on the way: compressed, they are a fraction.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(stream, table.schema, options=options) as writer:
        writer.write_table(table)
    rows = pa.array([stream.getvalue().to_pybytes()], pa.binary())
    return pa.table([pa.array([task], pa.int32()), rows], schema=PACKED)
