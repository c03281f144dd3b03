"""How close each counter runs to its limit: used over limit, over the window of enforcement.

At the end of every interval the bytes of the window before it are divided by what the limit allows in such a window,
for each counter: all clients that share it, on one broker and one proxy instance. An interval without use counts as
0, recorded or not. Percentiles are over the intervals of the period: the least that a share of them does not exceed,
from a histogram of logarithmic bins, or of the values themselves on request.

- A window is taken in whole intervals: with intervals of 1 s and Kafka's 11 samples of 1 s it is 11 intervals, and
  with intervals longer than it, it is one of them.
- Intervals of one instance begin together, within a tolerance of half an interval.
- The first window of a period does not know what was before the period.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.kinds import COUNTER, KINDS, counter_id, of_kind, unit_client_id, unit_user
from analysis.metrics.period import Period

BINS_PER_OCTAVE: Final = 16
"""Bins are 4.4 % wide and stand for their middle: a percentile is right within 2.2 %."""
LEAST: Final = 2.0**-10
"""Used over limit below it stands for 0."""
PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COUNTED: Final = ("kind", "counter")


def counters(steps: DataFrame) -> DataFrame:
    """Return ``counter`` (a number) and its names (COUNTER), from ``steps``."""
    rule = F.col("rule")
    names = (
        of_kind(steps, kind)
        .where(rule.isNotNull())
        .select(*COUNTER[:-2], unit_user(rule), unit_client_id(rule), counter_id())
        .distinct()
        for kind in KINDS
    )
    return reduce(DataFrame.unionByName, names)


def use(rows: DataFrame, period: Period) -> DataFrame:
    """Return COUNTED, ``date``, ``time_ms``, ``limit`` and ``used``: a row for each counter and interval with use.

    ``used`` is used over limit: 1.0 is the quota.
    """
    parts = (_use(rows, kind, window_ms, period.interval_ms) for kind in KINDS for window_ms in period.windows_ms)
    return reduce(DataFrame.unionByName, parts)


def histogram(used: DataFrame, *, exact: bool = False) -> DataFrame:
    """Return COUNTED, ``date`` and ``value`` of used over limit, with the number of ``intervals`` that had it.

    Besides ``over`` (how many of them were above 1), ``most``, and the last ``limit`` and ``time_ms``.
    """
    value = F.col("used") if exact else _middle_of_bin()
    return used.groupBy(*COUNTED, "date", value.alias("value")).agg(
        F.count(F.lit(1)).alias("intervals"),
        F.sum((F.col("used") > 1).cast("long")).alias("over"),
        F.max("used").alias("most"),
        F.max_by("limit", "time_ms").alias("limit"),
        F.max("time_ms").alias("time_ms"),
    )


def headroom(values: DataFrame, intervals: Column, *by: str) -> DataFrame:
    """Return COUNTED and ``by``, with ``p50``, ``p95``, ``p99``, ``max``, ``over`` and the last ``limit``.

    ``values`` is what ``histogram`` returned; ``intervals`` says how many the period has, or the part of it that
    ``by`` names; ``over`` is the share of them in which more was used than the limit allows.
    """
    key = (*COUNTED, *by)
    merged = values.groupBy(*key, "value").agg(
        *(F.sum(name).alias(name) for name in ("intervals", "over")),
        *(F.max(name).alias(name) for name in ("most", "time_ms")),
        F.max_by("limit", "time_ms").alias("limit"),
    )
    of_all = Window.partitionBy(*key)
    busy = F.sum("intervals").over(of_all)
    counted = merged.select(
        "*",
        F.greatest(intervals, busy).alias("total"),
        F.greatest(intervals - busy, F.lit(0)).alias("idle"),
        F.sum("intervals").over(of_all.orderBy("value")).alias("up_to"),
    )
    return counted.groupBy(*key).agg(
        *(_percentile(share).alias(name) for name, share in PERCENTILES.items()),
        F.max("most").alias("max"),
        (F.sum("over") / F.max("total")).alias("over"),
        F.max_by("limit", "time_ms").alias("limit"),
    )


def intervals_of_date(period: Period) -> Column:
    """Return how many intervals of the period are on the ``date`` of a row."""
    midnight_s = F.unix_seconds(F.col("date").cast("timestamp"))
    begin = F.greatest(midnight_s, F.lit(period.begin.timestamp()))
    end = F.least(midnight_s + 86400, F.lit(period.end.timestamp()))
    return F.greatest(F.round((end - begin) * 1000 / period.interval_ms), F.lit(1)).cast("long")


def _use(rows: DataFrame, kind: str, window_ms: int, interval_ms: int) -> DataFrame:
    whole = max(round(window_ms / interval_ms), 1)
    order = Window.partitionBy("counter").orderBy("time_ms")
    bytes_ = F.sum("bytes").over(order.rangeBetween(-((whole - 1) * interval_ms + interval_ms // 2), 0))
    # Clients that share a counter stand in rows of one time: the sum has all of them in each, and one is kept.
    last = F.coalesce(F.lead("time_ms").over(order) > F.col("time_ms"), F.lit(True))
    return (
        of_kind(rows.where(F.col("samples") * F.col("sample_ms") == window_ms), kind)
        .where((F.col("limit") > 0) & F.col("rule").isNotNull())
        .select("kind", counter_id(), "date", F.unix_millis("time").alias("time_ms"), "limit", "bytes")
        .withColumn("used", bytes_ / (F.col("limit") * (whole * interval_ms / 1000)))
        .withColumn("last", last)
        .where("last")
        .select(*COUNTED, "date", "time_ms", "limit", "used")
    )


def _middle_of_bin() -> Column:
    bin_ = F.floor(F.log2(F.greatest("used", F.lit(LEAST))) * BINS_PER_OCTAVE)
    return F.when(F.col("used") < LEAST, F.lit(0.0)).otherwise(F.pow(F.lit(2.0), (bin_ + 0.5) / BINS_PER_OCTAVE))


def _percentile(share: float) -> Column:
    """Return the least value that ``share`` of all intervals does not exceed: idle ones stand below all others."""
    rank = F.col("total") * share
    reached = F.when((F.col("up_to") + F.col("idle") >= rank) & (F.col("idle") < rank), F.least("value", "most"))
    return F.coalesce(F.min(reached), F.lit(0.0))
