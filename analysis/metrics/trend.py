"""Where each counter is heading: the slope of its daily p99 of used over limit, and the days until it is 1.

The slope is the median of those between any two days (Theil and Sen): one odd day does not move it. It is believed
when at least 5 days are there, and three of four pairs of days agree on it; else the verdict says what is missing.
A day belongs to it when at least half of it is in the period, and the counter was used on it.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period
from analysis.metrics.runs import starts
from analysis.table import hashes
from analysis.table.arrays import Floats, Ints, floats, ints, together, with_columns
from analysis.table.parts import Parts
from analysis.table.schema import TEXT

LEAST_DAYS: Final = 5
AGREEMENT: Final = 0.75
FARTHEST_DAYS: Final = 365
"""Farther than it, "days until" would be a guess."""
_HALF_A_DAY_MS: Final = 43_200_000
_MOST_PAIRS: Final = 2_000_000
_DAYS: Final = pa.schema(
    [
        *(("kind", TEXT), ("counter", pa.int64())),
        *(("date", pa.date32()), ("day", pa.int32()), ("p99", pa.float64())),
    ]
)


def days(daily: Parts, period: Period) -> pa.Table:
    """Return COUNTED, ``date``, ``day`` (its number) and ``p99``; ``daily`` is ``headroom`` by date."""
    whole = [day for day in period.dates() if period.intervals_on(day) * period.interval_ms >= _HALF_A_DAY_MS]
    wanted = pa.array(whole, pa.date32())
    found = (each.filter(pc.is_in(each["date"], wanted)) for each in daily.tables([*COUNTED, "date", "p99"]))
    return together((with_columns(each, {"day": each["date"].cast(pa.int32())}) for each in found), _DAYS)


def trend(counted: pa.Table) -> pa.Table:
    """Return COUNTED, ``days``, ``slope_per_day``, ``agreement``, ``now``, ``days_left`` and ``verdict``.

    ``counted`` is what ``days`` returned. ``now`` is the line's value on the last day; ``days_left`` is null unless
    the verdict is ``rising``. Verdicts: ``not enough data``, ``unclear``, ``level``, ``falling``, ``at its limit``,
    ``far``, ``rising``.
    """
    table = counted.sort_by([(name, "ascending") for name in (*COUNTED, "day")])
    day, p99 = ints(table, "day"), floats(table, "p99")
    first = starts(hashes.of_columns(table, COUNTED))
    count = np.diff(first, append=len(table))
    slope, up, down, now = (np.full(len(first), np.nan) for _ in range(4))
    for length in np.unique(count).tolist():
        # Courses of as many days are one block; of pairs of days only so many at a time.
        same = np.flatnonzero(count == length)
        for some in np.array_split(same, len(same) * length**2 // _MOST_PAIRS + 1):
            at = first[some][:, None] + np.arange(length)
            slope[some], up[some], down[some], now[some] = _fitted(day[at], p99[at])
    days_left = np.divide(1 - now, slope, out=np.full(len(first), np.nan), where=slope != 0)
    rising = (up >= AGREEMENT) & (slope > 0)
    verdict = np.select(
        [
            count < LEAST_DAYS,
            now >= 1,
            rising & (days_left > FARTHEST_DAYS),
            rising,
            down >= AGREEMENT,
            np.abs(slope) * FARTHEST_DAYS < 1 - now,
        ],
        ["not enough data", "at its limit", "far", "rising", "falling", "level"],
        "unclear",
    )
    columns = {
        "days": count,
        "slope_per_day": pa.array(slope, from_pandas=True),
        "agreement": pa.array(np.fmax(up, down), from_pandas=True),
        "now": now,
        "days_left": pa.array(np.where(verdict == "rising", days_left, np.nan), from_pandas=True),
        "verdict": pa.array(verdict.tolist(), TEXT),
    }
    return with_columns(table.select(COUNTED).take(pa.array(first)), columns)


def _fitted(day: Ints, p99: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return of courses, [course, day]: the slope, which shares of pairs of days go up and down, and the last value."""
    earlier, later = np.triu_indices(day.shape[1], 1)
    nothing = np.full(len(day), np.nan)
    if not len(earlier):
        return nothing, nothing, nothing, p99[:, 0]
    slopes = (p99[:, later] - p99[:, earlier]) / (day[:, later] - day[:, earlier])
    slope = np.median(slopes, axis=1)
    level = np.median(p99 + slope[:, None] * (day[:, -1:] - day), axis=1)
    return slope, (slopes > 0).mean(axis=1), (slopes < 0).mean(axis=1), level
