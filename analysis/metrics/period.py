"""What a period holds, found in one look at its rows; and how finely it is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.metrics import caps
from analysis.table.arrays import ints, summed, times_ms
from analysis.table.scan import UsageRows

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
        return max(round(self.seconds * 1000 / self.interval_ms), 1)

    def dates(self) -> list[date]:
        """Return every date that it touches."""
        first, last = self.begin.date(), (self.end - timedelta(microseconds=1)).date()
        return [first + timedelta(days=number) for number in range((last - first).days + 1)]

    def intervals_on(self, day: date) -> int:
        """Return how many of its intervals are on a date."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        begin, end = max(midnight, self.begin), min(midnight + timedelta(days=1), self.end)
        return max(round((end - begin).total_seconds() * 1000 / self.interval_ms), 1)

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
    found = usage.scan(_LOOKED_AT, _looked, _SEEN).toArrow().to_pylist()
    if not found:
        return None
    of_interval: dict[int, int] = {}
    for each in found:
        of_interval[each["interval_ms"]] = of_interval.get(each["interval_ms"], 0) + each["rows"]
    return Period(
        begin=_moment(min(each["begin_ms"] for each in found)),
        end=_moment(max(each["end_ms"] for each in found)),
        interval_ms=max(of_interval, key=lambda interval_ms: (of_interval[interval_ms], -interval_ms)),
        windows_ms=tuple(sorted({each["window_ms"] for each in found})),
        rows=sum(each["rows"] for each in found),
        modes=tuple(sorted({each["mode"] for each in found})),
        instances=len({each["instance"] for each in found}),
        brokers=len({each["broker"] for each in found if each["broker"] >= 0}),
        capped=tuple(kind for kind in caps.NAMES if any(each[f"{kind}_capped"] for each in found)),
    )


_LOOKED_AT: Final = (
    *("time", "interval_ms", "samples", "sample_ms", "mode", "instance", "broker"),
    *caps.NAMES.values(),
)
_CAPPED: Final = tuple(f"{kind}_capped" for kind in caps.NAMES)
_APART: Final = ("interval_ms", "window_ms", "mode", "instance", "broker")
_SEEN: Final = pa.schema(
    {
        "interval_ms": pa.int64(),
        "window_ms": pa.int64(),
        "mode": pa.string(),
        "instance": pa.string(),
        "broker": pa.int32(),
        "rows": pa.int64(),
        "begin_ms": pa.int64(),
        "end_ms": pa.int64(),
        **dict.fromkeys(_CAPPED, pa.int64()),
    }
)


def _looked(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    how = {"rows": "sum", "begin_ms": "min", "end_ms": "max", **dict.fromkeys(_CAPPED, "max")}
    return summed(map(_columns, tables), _APART, how)


def _columns(table: pa.Table) -> pa.Table:
    begin_ms, interval_ms = times_ms(table), ints(table, "interval_ms")
    columns = {
        "interval_ms": np.maximum((interval_ms + 500) // 1000, 1) * 1000,
        "window_ms": ints(table, "samples") * ints(table, "sample_ms"),
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


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
