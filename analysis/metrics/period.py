"""What a period holds, found in one look at its rows; and how finely it is drawn."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.metrics import caps
from analysis.table.arrays import DAY_MS, Ints, ints, summed, times_ms
from analysis.table.exchange import collected
from analysis.table.reading import Keeping, adding
from analysis.table.scan import OfDays, UsageRows

MOST_STEPS: Final = 180
"""Of a plot over time: more are not seen on a screen."""
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""They divide a day, so that no step belongs to two dates."""


@dataclass(frozen=True, slots=True)
class Period:
    """``begin`` to ``end`` (not in it), aware: from the first interval recorded to the end of the last."""

    begin: datetime
    end: datetime
    interval_ms: int
    """Of most rows, in whole seconds."""
    windows_ms: tuple[int, ...]
    """The windows of enforcement that were in force: samples x sample_ms."""
    rows: int
    modes: tuple[str, ...]
    instances: int
    brokers: int
    capped: tuple[str, ...] = ()
    """The quota kinds, by their words, of which anybody has caps."""
    longest_window_ms: int = 0
    """Of all windows of enforcement, those of token buckets too."""
    of_dates: Mapping[date, int] = field(default_factory=dict)
    """Of each date that has rows, ``interval_ms``: it may have been changed."""

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()

    @property
    def step_s(self) -> int:
        """How much time a step of a plot stands for."""
        return self.step_of(1)

    def step_of(self, least_s: int) -> int:
        """Return the same, of ``least_s`` at least."""
        return next((step for step in _STEPS_S if max(self.seconds / MOST_STEPS, least_s) <= step), _STEPS_S[-1])

    @property
    def intervals(self) -> int:
        """How many intervals it is long."""
        return sum(map(self.intervals_on, self.dates()))

    def interval_ms_at(self, times_ms: Ints) -> Ints:
        """Return how long intervals were at some times (Unix time)."""
        days, at = np.unique(times_ms // DAY_MS, return_inverse=True)
        return np.array([self._interval_ms_on(_EPOCH + timedelta(days=day)) for day in days.tolist()], dtype=int)[at]

    def _interval_ms_on(self, day: date) -> int:
        return self.of_dates.get(day, self.interval_ms)

    def last_dates(self, count: int) -> "Period":
        """Return what of it is on its last dates."""
        begin = datetime.combine(self.dates()[-count:][0], time(), UTC)
        return replace(self, begin=begin) if begin > self.begin else self

    def dates(self) -> list[date]:
        """Return every date that it touches."""
        first, last = self.begin.date(), (self.end - timedelta(microseconds=1)).date()
        return [first + timedelta(days=number) for number in range((last - first).days + 1)]

    def intervals_on(self, day: date) -> int:
        """Return how many of its intervals are on a date."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        begin, end = max(midnight, self.begin), min(midnight + timedelta(days=1), self.end)
        return max(round((end - begin).total_seconds() * 1000 / self._interval_ms_on(day)), 1)

    def steps(self, step_s: int | None = None) -> list[datetime]:
        """Return the begin of every step that the period touches, of ``step_s`` or of others than its own."""
        length_s = step_s or self.step_s
        first = step_of(self.begin, length_s)
        count = -(-(self.end - first) // timedelta(seconds=length_s))
        return [first + timedelta(seconds=length_s * number) for number in range(count)]


def step_of(moment: datetime, step_s: int) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() // step_s * step_s, UTC)


def look(usage: UsageRows) -> Period | None:
    """Return what is there; None if there is no row."""
    found = collected(usage, _LOOKED_AT, _looked, _SEEN, adding(_APART, _HOW), OfDays(KEPT, _seen)).to_pylist()
    if not found:
        return None
    of_dates: dict[date, list[dict[str, Any]]] = {}
    for each in found:
        of_dates.setdefault(each["date"], []).append(each)
    return Period(
        begin=_moment(min(each["begin_ms"] for each in found)),
        end=_moment(max(each["end_ms"] for each in found)),
        interval_ms=_most(found),
        windows_ms=tuple(sorted({each["window_ms"] for each in found})),
        rows=sum(each["rows"] for each in found),
        modes=tuple(sorted({each["mode"] for each in found})),
        instances=len({each["instance"] for each in found}),
        brokers=len({each["broker"] for each in found if each["broker"] >= 0}),
        capped=tuple(kind for kind in caps.NAMES if any(each[f"{kind}_capped"] for each in found)),
        longest_window_ms=max(max(each["window_ms"], each["controller_window_ms"]) for each in found),
        of_dates={day: _most(of_date) for day, of_date in of_dates.items()},
    )


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, _LOOKED_AT, _looked, _SEEN, adding(_APART, _HOW))


KEPT: Final = "period"
_EPOCH: Final = date(1970, 1, 1)
_LOOKED_AT: Final = (
    *("time", "interval_ms", "samples", "sample_ms", "controller_samples", "controller_sample_ms"),
    *("mode", "instance", "broker", *caps.NAMES.values()),
)
_CAPPED: Final = tuple(f"{kind}_capped" for kind in caps.NAMES)
_APART: Final = ("date", "interval_ms", "window_ms", "controller_window_ms", "mode", "instance", "broker")
_HOW: Final = {"rows": "sum", "begin_ms": "min", "end_ms": "max", **dict.fromkeys(_CAPPED, "max")}
_SEEN: Final = pa.schema(
    {
        "date": pa.date32(),
        **dict.fromkeys(("interval_ms", "window_ms", "controller_window_ms"), pa.int64()),
        "mode": pa.string(),
        "instance": pa.string(),
        "broker": pa.int32(),
        **dict.fromkeys(_HOW, pa.int64()),
    }
)


def _looked(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return _seen(map(_columns, tables))


def _seen(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return summed(tables, _APART, _HOW)


def _columns(table: pa.Table) -> pa.Table:
    begin_ms, interval_ms = times_ms(table), ints(table, "interval_ms")
    columns = {
        "date": pa.array((begin_ms // DAY_MS).astype(np.int32), pa.date32()),
        "interval_ms": np.maximum((interval_ms + 500) // 1000, 1) * 1000,
        "window_ms": ints(table, "samples") * ints(table, "sample_ms"),
        "controller_window_ms": ints(table, "controller_samples") * ints(table, "controller_sample_ms"),
        **{name: table[name] for name in ("mode", "instance", "broker")},
        "begin_ms": begin_ms,
        "end_ms": begin_ms + interval_ms,
        "rows": np.ones_like(begin_ms),
        **{
            capped: np.full_like(begin_ms, table[name].null_count < len(table))
            for capped, name in zip(_CAPPED, caps.NAMES.values(), strict=True)
        },
    }
    return pa.table(columns)


def _most(found: list[dict[str, Any]]) -> int:
    """Return the interval that most rows have."""
    rows: Counter[int] = Counter()
    for each in found:
        rows[each["interval_ms"]] += each["rows"]
    return max(rows, key=lambda interval_ms: (rows[interval_ms], -interval_ms))


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
