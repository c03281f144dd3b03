"""Replays rows of usage records in Spark's workers, all rows of a counter in one task."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from analysis.demand.counters import Counters
from analysis.demand.sums import NAMES, Sums
from analysis.kernel.arrays import Floats, Indices
from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.censoring import Recorded
from analysis.warehouse import Period

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from analysis.spark.session import SparkSettings

_TASK_ROWS: Final = 2**19
"""The approximate number of rows of a task: some 150 MB."""
_ROWS_OF_UNITS: Final = """
    SELECT /*+ REPARTITION({tasks}, unit) */ unit, series, unix_millis(time) - origin_ms AS begin_ms,
        -- A proxy that was suspended for over an hour reports it as one interval.
        least(greatest(interval_ms, 1), 3600000) AS interval_ms,
        IF(role = 'quota', used * per_used, 0) AS used, IF(mode = 'enforce', muted_ms, 0) AS muted_ms
    FROM {charges} JOIN {assignment} USING (cluster, instance, broker, user, client_id, kind)
    WHERE NOT exempt AND role <> 'shadow' AND (used > 0 OR muted_ms > 0)
"""

Work = Callable[[Indices, Recorded], Floats]
"""The work of a task: from units and their demand to [figure, unit]. A dataclass, which Spark sends to workers."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a period. Spark is started when they are read."""

    command: str
    settings: "SparkSettings"
    warehouse: str
    period: Period

    def replayed(self, sums: Sums, wanted: Counters, work: Work, figures: Sequence[str]) -> tuple[Indices, Floats]:
        """Return the units of ``wanted`` that have rows, and [figure, unit] the results of ``work``."""
        from pyspark.sql.functions import broadcast

        from analysis import charges
        from analysis.spark import session
        from analysis.spark.progress import to_stderr

        to_stderr(f"{self.command}: not all is in the tables of gold; Spark reads rows")
        spark = session.start(self.command, self.settings)
        assignment = wanted.assignment(sums)
        self._of(spark, assignment.select(NAMES).group_by(NAMES).aggregate([])).createOrReplaceTempView("usage")
        tasks = max(spark.sparkContext.defaultParallelism, int(wanted.rows(sums) // _TASK_ROWS) + 1)
        task = _Task(wanted.total(sums, "requests"), sums.circumstances.seconds, work, tuple(figures))
        found = (
            spark.sql(
                _ROWS_OF_UNITS,
                tasks=tasks,
                charges=charges.charges(spark, "usage", sums.present),
                assignment=broadcast(spark.createDataFrame(assignment)),
            )
            .mapInArrow(task.run, task.schema)
            .toArrow()
        )
        return found["unit"].to_numpy(), np.array([found[name].to_numpy() for name in figures])

    def _of(self, spark: "SparkSession", clients: pa.Table) -> "DataFrame":
        """Return the rows of some clients; columns that older files lack have their defaults."""
        from pyspark.sql.functions import broadcast, coalesce, col, lit

        from analysis.schema import COLUMNS, ROWS

        rows = spark.read.schema(ROWS).parquet(f"{self.warehouse.rstrip('/')}/usage")
        if (begin := self.period.begin) is not None:
            rows = rows.where(col("date") >= begin.date()).where(col("time") >= begin)
        if (end := self.period.end) is not None:
            rows = rows.where(col("date") <= end.date()).where(col("time") < end)
        rows = rows.join(broadcast(spark.createDataFrame(clients)), clients.column_names, "left_semi")
        defaults = {each.name: lit(each.missing) for each in COLUMNS if each.missing is not None}
        return rows.withColumns({name: coalesce(col(name), value) for name, value in defaults.items()})


@dataclass(frozen=True, slots=True)
class _Task:
    requests: Floats
    """[unit]."""
    seconds: int
    work: Work
    figures: tuple[str, ...]

    @property
    def schema(self) -> str:
        return ", ".join(["unit INT", *(f"{name} DOUBLE" for name in self.figures)])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Replay all rows of some units."""
        if not (found := list(batches)):
            return
        table = pa.Table.from_batches(found)
        unit, series, begin_ms, interval_ms = (
            table[name].to_numpy().astype(np.intp) for name in ("unit", "series", "begin_ms", "interval_ms")
        )
        used, muted_ms = (table[name].to_numpy().astype(float) for name in ("used", "muted_ms"))
        units, number_of_unit = np.unique(unit, return_inverse=True)
        _, first, number = np.unique(series, return_index=True, return_inverse=True)
        cells = Cells.of(SeriesRows(number, begin_ms, interval_ms, used, muted_ms))
        recorded = Recorded.of(cells, number_of_unit[first], self.requests[units], self.seconds)
        columns = [pa.array(units, pa.int32()), *map(pa.array, self.work(units, recorded))]
        yield pa.record_batch(columns, names=["unit", *self.figures])
