"""Who was throttled, when, how long and by which rule.

An episode is what an operator would call one throttling: intervals in which a client was muted, with gaps no longer
than the window of enforcement between them. So long the counter remembers what caused the mute before; a client that
is held at its quota is muted and let go in turns, and that is one episode and not a hundred.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.sums import total

WHO: Final = ("cluster", "broker", "user", "client_id", "kind", "rule", "mode")
"""An episode has one of each. What several proxy instances and listeners saw of a client is one episode."""


def episodes(muted: DataFrame, gap_ms: int) -> DataFrame:
    """Return WHO, ``begin``, ``end``, ``limit``, ``instances`` and the sums of what was throttled in each episode.

    ``begin`` and ``end`` are those of intervals. ``muted_ms`` adds what each instance muted it. ``limit`` is the
    lowest that was in force. In mode ``shadow`` it is what would have been.
    """
    order = Window.partitionBy(*WHO).orderBy("begin_ms", "end_ms")
    before = F.max("end_ms").over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("begin_ms") - before > gap_ms), 1).otherwise(0)
    numbered = muted.withColumn("begins", begins).withColumn("number", F.sum("begins").over(order))
    return (
        numbered.groupBy(*WHO, "number")
        .agg(
            F.timestamp_millis(F.min("begin_ms")).alias("begin"),
            F.timestamp_millis(F.max("end_ms")).alias("end"),
            *(total(name).alias(name) for name in ("muted_ms", "throttled", "throttle_ms", "bytes")),
            F.min("limit").alias("limit"),
            F.count_distinct("instance").alias("instances"),
        )
        .drop("number")
    )
