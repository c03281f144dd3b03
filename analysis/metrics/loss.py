"""What of a period is not known: documents that are missing, by boot of a proxy and hour; and what could not be read.

A missing document is a number that is stored nowhere, between two of the same boot that are. When it was written is
taken as even between the two. Nothing is expected of a proxy that was off, or that nobody used: it writes none.

- Before the first document of a boot, only what the proxy itself dropped is known: all of it, if it had dropped as many
  as there are numbers before. They are put before it, at the pace of those that follow.
- After its last one nothing is known: what a proxy that was killed had not shipped has no number that anybody has seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import unread
from analysis.metrics.period import Period
from analysis.table.arrays import Floats, Ints, added, ints, is_one_of, summed, times_ms, together, with_columns
from analysis.table.documents import BOOT, SPAN, after_gaps, documents, of_rows, united
from analysis.table.hashes import of_columns
from analysis.table.lateness import late_files
from analysis.table.parquet import plain
from analysis.table.reading import Keeping, Making, Rows
from analysis.table.scan import PATH, UsageRows
from analysis.table.schema import COUNT, TEXT, TIME
from quotas.names import OTHER

HOUR_MS: Final = 3_600_000
KEPT: Final = "documents"
_END_OF_TIME_MS: Final = 253_402_300_800_000
_OUTSIDE: Final = -1
"""The hour of what is beside the period: it says where gaps at its ends begin, or end."""
_MOST_HOURS: Final = 31 * 24
"""Of one gap. What is missing for longer is told of its last hours: it is a wrong clock, or a forged number."""
_COUNTED: Final = ("documents", "missing", "dropped", "late", "rows", "rows_of_others", "rows_of_nobody")
FIGURES: Final = (*_COUNTED[:4], *unread.FIGURES, *_COUNTED[4:])
_KEYS: Final = (*BOOT, "hour", "late")
_SUMS: Final = {"dropped": "max", "dropped_before": "min", **dict.fromkeys(_COUNTED[4:], "sum")}
_READ: Final = (*BOOT, "seq", "time", "interval_ms", "dropped_documents", "user", "client_id", "ip", PATH)
_LINES: Final = pa.schema(
    [*((name, TEXT) for name in BOOT), *((name, COUNT) for name in ("hour", "late", *SPAN, *_SUMS))]
)
_OF_HOUR: Final = pa.schema([*((name, TEXT) for name in (*BOOT,)), *((name, COUNT) for name in ("hour", *_COUNTED))])
_LINES_OF_HOUR: Final = pa.schema([*((name, TEXT) for name in BOOT), *((name, COUNT) for name in ("hour", *FIGURES))])


def making(usage: UsageRows, period: Period) -> Making:
    """Return what is stored, and missing, of each boot and hour: for ``loss``."""
    return Making("loss", keeping(usage, period), _documents(usage, period).received, _OF_HOUR)


def loss(found: pa.Table, usage: UsageRows, period: Period) -> pa.Table:
    """Return BOOT, ``hour`` (its begin), FIGURES, ``expected`` and ``share_missing``: of each boot and hour with any.

    ``found`` is what ``making`` says. ``documents`` are stored, ``expected`` those and the ``missing`` ones;
    ``dropped`` is by how much the proxy's own count of what it dropped has grown, as told in this hour: it is noticed
    later than the gap. ``late`` of the stored came after later hours had. ``rejected`` ones are missing as well, unless
    they came again; BOOT is null where they do not say whose they are. ``rows_of_others`` are of clients beyond
    ``usage.max_clients``, ``rows_of_nobody`` of refused connections.
    """
    around = usage.around() if usage.around else usage
    lines = [found, unread.unread(around.rejected, usage, period)]
    sums = added(together(map(_with_all, lines), _LINES_OF_HOUR), (*BOOT, "hour"), dict.fromkeys(FIGURES, "sum"))
    hour_us = pa.array(1_000_000 * 3600 * ints(sums, "hour"), mask=np.asarray(sums["hour"].is_null()))
    expected = ints(sums, "documents") + ints(sums, "missing")
    hours = sums.set_column(sums.schema.get_field_index("hour"), "hour", hour_us.cast(TIME))
    return with_columns(hours, {"expected": expected, "share_missing": shares(ints(sums, "missing"), expected)})


def _with_all(lines: pa.Table) -> pa.Table:
    missing = (name for name in FIGURES if name not in lines.column_names)
    return with_columns(lines, {name: np.zeros(len(lines), dtype=np.int64) for name in missing})


def keeping(usage: UsageRows, period: Period | None = None) -> Keeping:
    """Return what is kept of rows as KEPT: of days, or as ``loss`` needs it of a ``period``."""
    work = _documents(usage, period)
    rows = Rows.MEANT if period is None else Rows.AROUND
    add = partial(united, keys=_KEYS, how=_SUMS)
    return Keeping(KEPT, _READ, work.lines, _LINES, add, _of_boot, rows=rows)


def _documents(usage: UsageRows, period: Period | None) -> "_Documents":
    around = usage.around() if usage.around else usage
    span_ms = (0, _END_OF_TIME_MS)
    if period is not None:
        span_ms = (round(period.begin.timestamp() * 1000), round(period.end.timestamp() * 1000))
    return _Documents(*span_ms, late_files(around.paths()))


def shares(part: Ints, of: Ints) -> Floats:
    """Return which share one is of the other; 0 where that is 0."""
    return np.divide(part, of, out=np.zeros(len(of)), where=of > 0)


def _of_boot(lines: pa.Table) -> Ints:
    return of_columns(lines, BOOT)


@dataclass(frozen=True, slots=True)
class _Documents:
    """From tables to one line for each boot and hour, with _COUNTED."""

    begin_ms: int
    end_ms: int
    late: frozenset[str]

    def lines(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            time_ms = times_ms(table)
            is_inside = (time_ms >= self.begin_ms) & (time_ms < self.end_ms)
            nobody = pc.and_(pc.is_null(table["user"]), pc.is_null(table["ip"]))
            values = {
                "hour": np.where(is_inside, time_ms // HOUR_MS, _OUTSIDE),
                "late": is_one_of(table[PATH], self.late),
                "begin_ms": time_ms,
                "end_ms": time_ms + ints(table, "interval_ms"),
                "dropped": table["dropped_documents"],
                "dropped_before": table["dropped_documents"],
                "rows": np.ones_like(time_ms),
                "rows_of_others": is_one_of(table["client_id"], {OTHER}),
                "rows_of_nobody": nobody.cast(pa.int64()),
            }
            yield of_rows(with_columns(table.select([*BOOT, "seq"]), values), _KEYS, _SUMS)

    def received(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for lines in tables:
            found = self._known_from_the_first(after_gaps(lines))
            counted = {"documents": documents(found), "late": documents(found) * ints(found, "late")}
            counted["dropped"] = _grown(found)
            counted["missing"] = np.zeros(len(found), dtype=np.int64)
            stored = with_columns(found.drop_columns(["late", "dropped", "missing"]), counted)
            parts = (each.select(_OF_HOUR.names) for each in (stored, *self._missing(found)))
            for hours in summed(map(plain, parts), (*BOOT, "hour"), dict.fromkeys(_COUNTED, "sum")):
                yield hours.filter(pc.not_equal(hours["hour"], _OUTSIDE)).cast(_OF_HOUR)

    def _known_from_the_first(self, found: pa.Table) -> pa.Table:
        """Have what is before the first number of a boot as missing where the proxy says that it dropped all of it."""
        first, dropped = ints(found, "first"), ints(found, "dropped_before")
        all_dropped = np.asarray(found["is_first"]) & (dropped >= first)
        begin_ms = ints(found, "begin_ms")
        pace_ms = (ints(found, "end_ms") - begin_ms) / documents(found)
        values = {
            "missing": np.where(all_dropped, first, ints(found, "missing")),
            "since_ms": np.where(all_dropped, np.maximum(begin_ms - first * pace_ms, 0), ints(found, "since_ms")),
            "dropped_before": np.where(all_dropped, 0, dropped),
        }
        return with_columns(found.drop_columns([*values]), values)

    def _missing(self, found: pa.Table) -> Iterator[pa.Table]:
        """Yield what is missing, in the hours of the period in which it was written."""
        gaps = found.filter(pc.greater(found["missing"], 0))
        until_ms = ints(gaps, "begin_ms")
        since_ms = np.clip(ints(gaps, "since_ms"), until_ms - _MOST_HOURS * HOUR_MS, until_ms)
        missing = ints(gaps, "missing")
        begin_ms, end_ms = np.maximum(since_ms, self.begin_ms), np.minimum(until_ms, self.end_ms)
        nothing = dict.fromkeys(_COUNTED, 0)
        hour = begin_ms // HOUR_MS
        # Most are within an hour; of the others, each hour in turn.
        while len(gaps):
            ends_ms = np.minimum((hour + 1) * HOUR_MS, end_ms)
            written = _written(missing, since_ms, until_ms, ends_ms) - _written(missing, since_ms, until_ms, begin_ms)
            at_once = (since_ms == until_ms) & (until_ms >= self.begin_ms) & (until_ms < self.end_ms)
            written = np.where(at_once, missing, written)
            same = {name: pa.repeat(0, len(gaps)) for name in nothing}
            of_hour = with_columns(gaps.select(BOOT), {**same, "hour": hour, "missing": written})
            yield of_hour.filter(pc.greater(of_hour["missing"], 0))
            left = np.flatnonzero(ends_ms < end_ms)
            gaps, missing = gaps.take(pa.array(left)), missing[left]
            since_ms, until_ms, end_ms = since_ms[left], until_ms[left], end_ms[left]
            begin_ms, hour = ends_ms[left], hour[left] + 1


def _written(missing: Ints, since_ms: Ints, until_ms: Ints, at_ms: Ints) -> Ints:
    """Return how many of those missing had been written at a moment, if they were evenly."""
    share = (at_ms - since_ms) / np.maximum(until_ms - since_ms, 1)
    return np.asarray(np.floor(missing * np.clip(share, 0, 1)), dtype=np.int64)


def _grown(found: pa.Table) -> Ints:
    """Return by how much the count of dropped documents has grown in each line, since the one before of its boot."""
    dropped, is_first = ints(found, "dropped").copy(), np.asarray(found["is_first"])
    for each in np.split(dropped, np.flatnonzero(is_first)[1:]):
        np.maximum.accumulate(each, out=each)
    before = np.where(is_first, ints(found, "dropped_before"), np.roll(dropped, 1))
    return np.maximum(dropped - before, 0)
