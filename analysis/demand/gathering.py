"""From rows of usage records to the seconds of counters, each counter in one task: the one shuffle of a replay."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.demand.counted import Counted
from analysis.demand.recording import NAMES, Recording
from analysis.demand.rows import Charges
from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.series import Recorded

_TASK_ROWS: Final = 2**19
"""In one task, about: some 150 MB meanwhile."""
_GATHERED: Final = """
    SELECT unit, series, begin_ms, interval_ms, sum(used) AS used, sum(muted_ms) AS muted_ms
    FROM (
        -- A proxy that was suspended for over an hour says so in one interval; nobody knows when in it what was used.
        SELECT unit, series, unix_millis(time) - origin_ms AS begin_ms,
            least(greatest(interval_ms, 1), 3600000) AS interval_ms,
            IF(role = 'quota', used * per_used, 0) AS used, IF(mode = 'enforce', muted_ms, 0) AS muted_ms
        FROM {charges} JOIN {assignment} USING (cluster, instance, broker, user, client_id, kind)
        WHERE NOT exempt AND role <> 'shadow' AND (used > 0 OR muted_ms > 0)
    )
    GROUP BY unit, series, begin_ms, interval_ms
"""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The units of one task."""

    units: Indices
    """By the numbers that were asked for, ascending."""
    recorded: Recorded
    """Their demand; numbered from 0."""


Work = Callable[[Gathered], pa.Table]
"""The work of a task: figures by ``unit``. It travels to the workers: a dataclass that can be called."""


def gather(recording: Recording, wanted: Counted, charges: Charges, work: Work, schema: str) -> pa.Table:
    """Return all that ``work`` makes of the rows of ``wanted``, by ``schema``."""
    from pyspark.sql.functions import broadcast, lit, pmod

    assignment = wanted.assignment(recording)
    clients = assignment.select(NAMES).group_by(NAMES).aggregate([])
    of_clients = charges(clients, recording.present)
    spark = of_clients.sparkSession
    rows = wanted.active_s(recording).sum() * 1000 / recording.circumstances.interval_ms
    tasks = max(spark.sparkContext.defaultParallelism, int(rows // _TASK_ROWS) + 1)
    task = _Task(wanted.sums(recording, "requests"), recording.circumstances.seconds, work)
    found = (
        spark.sql(_GATHERED, charges=of_clients, assignment=broadcast(spark.createDataFrame(assignment)))
        .groupBy(pmod("unit", lit(tasks)))
        .applyInArrow(lambda table: task.run(table), schema)  # noqa: PLW0108  of a method, Spark counts ``self``
    )
    return found.toArrow()


@dataclass(frozen=True, slots=True)
class _Task:
    requests: Floats
    """[unit]."""
    seconds: int
    work: Work

    def run(self, table: pa.Table) -> pa.Table:
        """Work on all rows of some units."""
        unit, series, begin_ms, interval_ms = (
            table[name].to_numpy().astype(np.intp) for name in ("unit", "series", "begin_ms", "interval_ms")
        )
        used, muted_ms = (table[name].to_numpy().astype(float) for name in ("used", "muted_ms"))
        units, number_of_unit = np.unique(unit, return_inverse=True)
        _, first, number = np.unique(series, return_index=True, return_inverse=True)
        cells = Cells.of(SeriesRows(number, begin_ms, interval_ms, used, muted_ms))
        unit_of = number_of_unit[first]
        return self.work(Gathered(units, Recorded.of(cells, unit_of, self.requests[units], self.seconds)))
