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
    from pyspark.sql.types import StructType

    from analysis.spark.session import SparkSettings

_TASK_ROWS: Final = 2**19
"""The approximate number of rows of a task: some 150 MB."""
_LINES: Final = """
    SELECT line, role, per_used, is_longest, mode, unit, series, origin_ms
    FROM {rules} r JOIN (SELECT * EXCEPT (broker) FROM {keys}) USING (key)
    JOIN {assignment} USING (cluster, instance, broker, user, client_id, kind)
    WHERE NOT exempt AND role <> 'shadow'
"""
_ROWS_OF_UNITS: Final = """
    SELECT /*+ REPARTITION({tasks}, unit), BROADCAST(lines) */ unit, series, unix_millis(time) - origin_ms AS begin_ms,
        -- A proxy that was suspended for over an hour reports it as one interval.
        least(greatest(interval_ms, 1), 3600000) AS interval_ms,
        IF(role = 'quota', used * per_used, 0) AS used, IF(mode = 'enforce' AND is_longest, muted_ms, 0) AS muted_ms
    FROM {charges} JOIN {lines} lines USING (line) WHERE used > 0 OR muted_ms > 0 AND is_longest
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

        from analysis.charges import charges, rules
        from analysis.schema import KEYS, ROWS
        from analysis.spark import session
        from analysis.spark.progress import to_stderr

        to_stderr(f"{self.command}: not all is in the tables of gold; Spark reads rows")
        spark = session.start(self.command, self.settings)
        tasks = max(spark.sparkContext.defaultParallelism, int(wanted.rows(sums) // _TASK_ROWS) + 1)
        task = _Task(wanted.total(sums, "requests"), sums.circumstances.seconds, work, tuple(figures))
        assignment = spark.createDataFrame(wanted.assignment(sums))
        clients = broadcast(assignment.select(*NAMES).distinct())
        keys = self._stored(spark, "keys", KEYS).join(clients, [*NAMES], "left_semi").drop("date", "hour").distinct()
        lines = spark.sql(_LINES, rules=rules(spark, keys, sums.present), keys=keys, assignment=assignment)
        usage = self._stored(spark, "usage", ROWS)
        if (begin := self.period.begin) is not None:
            usage = usage.where(usage.time >= begin)
        if (end := self.period.end) is not None:
            usage = usage.where(usage.time < end)
        found = (
            spark.sql(_ROWS_OF_UNITS, tasks=tasks, charges=charges(spark, usage, sums.present), lines=lines)
            .mapInArrow(task.run, task.schema)
            .toArrow()
        )
        return found["unit"].to_numpy(), np.array([found[name].to_numpy() for name in figures])

    def _stored(self, spark: "SparkSession", table: str, schema: "StructType") -> "DataFrame":
        """Return the rows of a table on the dates of the period."""
        from analysis.charges import with_defaults

        rows = spark.read.schema(schema).parquet(f"{self.warehouse.rstrip('/')}/{table}")
        if (begin := self.period.begin) is not None:
            rows = rows.where(rows.date >= begin.date())
        if (end := self.period.end) is not None:
            rows = rows.where(rows.date <= end.date())
        return with_defaults(rows.select(schema.names))


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
