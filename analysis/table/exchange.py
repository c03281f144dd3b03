"""Rows as Arrow tables that travel in one piece: between tasks, and to the driver.

Spark moves a few large binary values, as they are. Rows that it takes apart, and puts together again, cost twenty
times as much.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.table.parquet import encoded, plain
from analysis.table.scan import OfDays, UsageRows, Work, made

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
    of_days: OfDays | None = None
    """What is kept of days, to PACKED."""

    def frame(self, work: Work, schema: pa.Schema) -> DataFrame:
        """Return what ``work`` yields of what a task has got: the columns of ``schema``, for SQL to go on with.

        ``work`` gets texts as dictionaries, as in ``scan``.
        """
        if self.usage.at_hand is not None:
            return self.usage.spark.createDataFrame(self._work_here(work, schema))

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return made(work(map(encoded, unpacked(batches))), schema)

        sent = self.usage.scan(self.columns, self.work, PACKED, self.of_days)
        return sent.repartitionById(self.tasks, F.col("task")).mapInArrow(run, from_arrow_schema(schema))

    def collect(self, work: Work) -> pa.Table:
        """Return all that ``work`` yields of what a task has got; without a column where that is nothing."""

        def packing(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
            for table in work(tables):
                yield _one(table, 0)

        here = self.usage.at_hand is not None
        found: Any = self._work_here(packing, PACKED) if here else self.frame(packing, PACKED).toArrow()
        tables = list(unpacked(iter(found.to_batches())))
        return pa.concat_tables(tables) if tables else pa.table({})

    def _work_here(self, work: Work, schema: pa.Schema) -> pa.Table:
        """Do the work of all tasks as one."""
        sent = self.usage.work_here(self.columns, self.work, PACKED)
        received = map(encoded, unpacked(iter(sent.to_batches())))
        return pa.Table.from_batches(made(work(received), schema), schema)


def exchange(
    usage: UsageRows, columns: Sequence[str], work: Work, tasks: int, of_days: OfDays | None = None
) -> Exchange:
    """Send what ``work`` makes of tables of rows, PACKED, to ``tasks`` tasks."""
    return Exchange(usage, tuple(columns), work, tasks, of_days)


def _one(table: pa.Table, task: int) -> pa.Table:
    table = plain(table)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    rows = pa.array([stream.getvalue().to_pybytes()], pa.binary())
    return pa.table([pa.array([task], pa.int32()), rows], schema=PACKED)
