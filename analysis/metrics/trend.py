"""Where each counter is heading: the slope of its daily p99 of used over limit, and the days until it is 1.

The slope is the median of those between any two days (Theil and Sen): one odd day does not move it. It is believed
when at least 5 days are there, and three of four pairs of days agree on it; else the verdict says what is missing.
A day belongs to it when at least half of it is in the period, and the counter was used on it.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period

LEAST_DAYS: Final = 5
AGREEMENT: Final = 0.75
FARTHEST_DAYS: Final = 365
"""Farther than it, "days until" would be a guess."""
_HALF_A_DAY_MS: Final = 43_200_000


def days(daily: DataFrame, period: Period) -> DataFrame:
    """Return COUNTED, ``date``, ``day`` (its number) and ``p99``; ``daily`` is ``headroom`` by date."""
    whole = [day for day in period.dates() if period.intervals_on(day) * period.interval_ms >= _HALF_A_DAY_MS]
    return daily.where(F.col("date").isin(whole)).select(*COUNTED, "date", F.unix_date("date").alias("day"), "p99")


def trend(counted: DataFrame) -> DataFrame:
    """Return COUNTED, ``days``, ``slope_per_day``, ``agreement``, ``now``, ``days_left`` and ``verdict``.

    ``counted`` is what ``days`` returned. ``now`` is the line's value on the last day; ``days_left`` is null unless
    the verdict is ``rising``. Verdicts: ``not enough data``, ``unclear``, ``level``, ``falling``, ``at its limit``,
    ``far``, ``rising``.
    """
    later = counted.select(*COUNTED, F.col("day").alias("later_day"), F.col("p99").alias("later_p99"))
    slope = (F.col("later_p99") - F.col("p99")) / (F.col("later_day") - F.col("day"))
    pairs = counted.join(later, [*COUNTED]).where(F.col("later_day") > F.col("day")).withColumn("slope", slope)
    slopes = pairs.groupBy(*COUNTED).agg(
        F.median("slope").alias("slope_per_day"),
        F.avg((F.col("slope") > 0).cast("double")).alias("up"),
        F.avg((F.col("slope") < 0).cast("double")).alias("down"),
    )
    last = counted.groupBy(*COUNTED).agg(F.max("day").alias("last_day"), F.count(F.lit(1)).alias("days"))
    lines = counted.join(last, [*COUNTED]).join(slopes, [*COUNTED], "left")
    level = F.col("p99") + F.coalesce("slope_per_day", F.lit(0.0)) * (F.col("last_day") - F.col("day"))
    fitted = lines.groupBy(*COUNTED, "days", "slope_per_day", "up", "down").agg(F.median(level).alias("now"))
    days_left = (1 - F.col("now")) / F.col("slope_per_day")
    rising = F.col("up") >= AGREEMENT
    verdict = (
        F.when(F.col("days") < LEAST_DAYS, "not enough data")
        .when(F.col("now") >= 1, "at its limit")
        .when(rising & (F.col("slope_per_day") > 0), F.when(days_left > FARTHEST_DAYS, "far").otherwise("rising"))
        .when(F.col("down") >= AGREEMENT, "falling")
        .when(F.abs("slope_per_day") * FARTHEST_DAYS < 1 - F.col("now"), "level")
        .otherwise("unclear")
    )
    return fitted.select(
        *COUNTED,
        "days",
        "slope_per_day",
        F.greatest("up", "down").alias("agreement"),
        "now",
        F.when(verdict == "rising", days_left).alias("days_left"),
        verdict.alias("verdict"),
    )
