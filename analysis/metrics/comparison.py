"""A period against another one, as a rule the one before it: who came and went, what use and headroom have changed.

Sums stand as they were recorded; whoever shows them scales those of a period of another length, and says of how much
of either nothing was recorded (``unrecorded_s``).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.talkers import CLIENT
from analysis.table.arrays import Ints, ints, summed, times_ms
from analysis.table.reading import Keeping, adding
from analysis.table.scan import OfDays, UsageRows

SUMS: Final = ("bytes_in", "bytes_out", "requests", "muted_ms")
LIMIT: Final = ("cluster", "broker", "kind", "rule", "unit_user", "unit_client_id")
"""A limit on a broker, whichever proxy instances enforce it."""
QUOTA: Final = ("cluster", "kind", "rule")
KEPT: Final = "minutes"
BOTH: Final = "both"
NEW: Final = "new"
GONE: Final = "gone"
BEFORE: Final = "_before"
_LEAST_GAP_MINUTES: Final = 5
"""Without a record: nobody may have been active for less."""
_MINUTE_MS: Final = 60_000
_MINUTES: Final = pa.schema([("minute", pa.int64()), ("rows", pa.int64())])


def clients(now: DataFrame, before: DataFrame, muted: Column) -> DataFrame:
    """Return CLIENT, ``seen`` (BOTH, NEW or GONE), SUMS, and SUMS with BEFORE; both from ``talkers.talkers``.

    ``muted`` is what is muted time in these. Who did nothing in one of the periods has zeros there.
    """
    used = [
        each.where(F.col("user").isNotNull()).select(*CLIENT, *SUMS[:-1], muted.alias(SUMS[-1]))
        for each in (now, before)
    ]
    return _joined(used, CLIENT, SUMS).na.fill(0, [name + end for name in SUMS for end in ("", BEFORE)])


def limits(now: DataFrame, before: DataFrame) -> DataFrame:
    """Return LIMIT, ``seen``, ``p99`` (of the instance that has most) and ``limit``, and these with BEFORE.

    Both are from ``headroom.headroom`` of whole periods, with names. Of one that was not used there is none (null).
    """
    of_limit = (F.max("p99").alias("p99"), F.max("limit").alias("limit"))
    used = [each.where(F.col("max") > 0).groupBy(*LIMIT).agg(*of_limit) for each in (now, before)]
    return _joined(used, LIMIT, ("p99", "limit"))


def quotas(now: DataFrame, before: DataFrame) -> DataFrame:
    """Return QUOTA, ``seen``, ``least_limit`` and ``most_limit``, and these with BEFORE: the last of each counter."""
    ends = (F.min("limit").alias("least_limit"), F.max("limit").alias("most_limit"))
    used = [each.groupBy(*QUOTA).agg(*ends) for each in (now, before)]
    return _joined(used, QUOTA, ("least_limit", "most_limit"))


def unrecorded_s(usage: UsageRows, begin: datetime, end: datetime) -> int:
    """Return for how long nothing was recorded between two times, in gaps of some minutes each."""
    table = usage.scan(("time", "interval_ms"), _minutes, _MINUTES, OfDays(KEPT)).toArrow()
    return gaps_s(np.unique(ints(table, "minute")), begin, end)


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, ("time", "interval_ms"), _minutes, _MINUTES, adding(("minute",), {"rows": "sum"}))


def gaps_s(minutes: Ints, begin: datetime, end: datetime) -> int:
    """Return the same of ``minutes``, ascending, since 1970, of which there are records."""
    first, last = int(begin.timestamp()) // 60, -int(-end.timestamp() // 60)
    known = np.concatenate([[first - 1], minutes[(minutes >= first) & (minutes < last)], [last]])
    without = np.diff(known) - 1
    return int(without[without >= _LEAST_GAP_MINUTES].sum()) * 60


def _minutes(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return summed(map(_touched, tables), ("minute",), {"rows": "sum"})


def _touched(table: pa.Table) -> pa.Table:
    """Return every minute that an interval touches; those of many minutes are few."""
    begin_ms = times_ms(table)
    first = begin_ms // _MINUTE_MS
    count = np.maximum((begin_ms + ints(table, "interval_ms") - 1) // _MINUTE_MS - first, 0) + 1
    most = int(count.max(initial=1)) + 1
    apart = (divmod(both, most) for both in np.unique(first * most + count).tolist())
    minutes = np.concatenate([np.arange(at, at + many) for at, many in apart] or [np.zeros(0, dtype=np.int64)])
    return pa.table({"minute": minutes, "rows": np.ones_like(minutes)})


def _joined(used: Sequence[DataFrame], keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    now, before = used
    mine = now.select(*(F.col(name).alias(f"{name}_now") for name in keys), *values, F.lit(True).alias("is_now"))
    theirs = before.select(*keys, *(F.col(name).alias(name + BEFORE) for name in values), F.lit(True).alias("was"))
    same = [F.col(f"{name}_now").eqNullSafe(F.col(name)) for name in keys]
    both = mine.join(theirs, same, "full_outer")
    seen = F.when(F.col("was").isNull(), NEW).when(F.col("is_now").isNull(), GONE).otherwise(BOTH)
    names = [F.when(F.col("is_now").isNull(), F.col(name)).otherwise(F.col(f"{name}_now")).alias(name) for name in keys]
    return both.select(*names, seen.alias("seen"), *(name + end for name in values for end in ("", BEFORE)))
