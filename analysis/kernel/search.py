"""The smallest quota for each unit that meets a target, by a replay that answers that question alone.

Three things make it cheaper than the replay of ``analysis.kernel.fluid``. A unit goes through the loop only while it is
held, or over a limit in the open loop: until its first throttle it passes as it comes, and again once nothing of it is
late. It leaves the loop for good when more of it is beyond the target than may be; and a quota that fails takes all
lower ones along. And nothing is measured but what the target is about. tests/analysis/kernel/test_search.py compares it
with the whole replay.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.cells import Cells
from analysis.kernel.demand import Bools, Demand, Indices, curve
from analysis.kernel.fluid import (
    LEAST_THROTTLE_S,
    LEAST_WAITING_BYTES,
    NEARLY,
    PIECES,
    SLAB_S,
    Pace,
    asked_seconds,
    given_s,
)
from analysis.kernel.histogram import EDGES_S, Floats
from analysis.kernel.series import Recorded
from analysis.kernel.target import Measure, Target
from quotas.rate import Window

SCALES: Final = 8
"""How many quotas are tried in one pass: the block is as wide, and costs three times as much as one."""
_RESOLUTION: Final = 1.02
_UNITS: Final = 8192
"""That are tried together: in the loop there are few of them at any time."""
_BLUR: Final = 2.0**-50
"""What sums over all units may be off by, as a share of the whole."""


def smallest(recorded: Recorded, target: Target, window: Window) -> Floats:
    """Return the smallest quota [unit] under which the demand at most meets ``target``, to 2 %, from above.

    Never below the mean rate, under which a backlog only grows; 0 for a unit without demand.
    """
    units = len(recorded.answers)
    high = enough(recorded.high.surge_bytes(units, surge_window_s(window)), window)
    mean = recorded.low.sums(recorded.low.sent_bytes, units) / recorded.seconds
    # Who used nothing needs nothing; beside huge values, the sums of others are lost, and say the same.
    used = np.flatnonzero(high > 0)
    found = np.zeros(units)
    for at in range(0, len(used), _UNITS):
        part = used[at : at + _UNITS]
        found[part] = least_that(Trial(recorded, part, target, window).met, mean[part], high[part])
    return found


def least_that(met: Callable[[Floats, Indices], Bools], low: Floats, high: Floats) -> Floats:
    """Return the smallest quota [unit] between ``low`` and ``high`` that does, to 2 %, from above.

    ``met`` says of quotas [scenario, one of some units], ``SCALES`` of them at once and ascending, which do, and from
    which on all do: what it says of those below one that does not is not asked for. Those of ``high`` are known to.
    What is found for a unit does not depend on which others there are.
    """
    low, high = np.minimum(low, high), high.copy()
    parts = np.arange(SCALES) / SCALES  # the low end itself may do, once
    while len(units := np.flatnonzero(high > low * _RESOLUTION)):
        lowest, highest = low[units], high[units]
        tried = lowest * (highest / lowest) ** parts[:, None]
        # All from there on must meet it: a quota that is met by chance below one that is not is not trusted.
        fails = SCALES - np.logical_and.accumulate(met(tried, units)[::-1]).sum(axis=0)
        unit = np.arange(len(units))
        low[units] = np.concatenate((lowest[None], tried))[fails, unit]
        high[units] = np.concatenate((tried, highest[None]))[fails, unit]
        parts = np.arange(1, SCALES + 1) / (SCALES + 1)
    return high


def surge_window_s(window: Window) -> float:
    """Return how long the bytes of a surge can count together, wherever samples begin."""
    return (window.keep_ms + window.size_ms) / 1000


def enough(surge: Floats, window: Window) -> Floats:
    """Return quotas under which nobody is ever throttled, from the most bytes in any ``surge_window_s``.

    Kafka divides by N - 1 samples at least.
    """
    sample_s = window.size_ms / 1000
    return np.asarray(surge / max(window.keep_ms / 1000 - sample_s, sample_s))


@dataclass(slots=True)
class _Held:
    """The columns (scenario, unit) in the loop, at the begin of a slab."""

    scenario: Indices
    unit: Indices
    late: Floats
    """[point, column]: what was sent less what had arrived by the end of the slab before, at its last points."""

    def where(self, chosen: Bools) -> "_Held":
        return _Held(self.scenario[chosen], self.unit[chosen], self.late[:, chosen])


class Trial:
    """The demand of some units at most, which quotas are tried on."""

    def __init__(self, recorded: Recorded, units: Indices, target: Target, window: Window) -> None:
        self._target = target
        self._seconds = recorded.seconds
        self._window_s = window.keep_ms / 1000
        self._history = int(np.ceil(self._window_s))
        nothing = np.zeros((0, len(units)))
        self._demand = Demand(nothing, recorded.request_bytes[units], recorded.peak_bytes_per_s[units])
        self._arrivals = _Arrivals(recorded.high, units, recorded.seconds)
        self._surges = self._arrivals.surges(self._history)
        surely_s = target.most
        if target.measure is Measure.THROTTLE:  # as Target.met has it
            surely_s = max(target.most - window.size_ms / 1000, 0.0)
        self._edge_s = float(EDGES_S[max(int(np.searchsorted(EDGES_S, surely_s, side="right")) - 1, 1)])
        """From there on, times are beyond the target (``histogram.share_above``)."""

    def met(self, tried: Floats, units: Indices) -> Bools:
        """Return [scenario, one of ``units``] which quotas meet the target.

        ``tried`` ascend by scenario, and of those below one that does not meet it none is said to. ``units`` are
        numbers among those of the trial.
        """
        run = _Run(tried, self._arrivals.total[units], self._arrivals.active_s[units], self._target, self._seconds)
        held = _Held(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), np.zeros((self._history + 1, 0)))
        surges = self._surges.of(units, tried[0] * self._window_s)
        slab, of_slab = next(surges, (None, None))
        at = 0
        while slab is not None or len(held.unit):
            at = at if len(held.unit) or slab is None else slab
            if slab == at and of_slab is not None:
                held = self._joined(held, run, units, at, *of_slab)
                slab, of_slab = next(surges, (None, None))
            if len(held.unit):
                held = self._slab(held, run, units, at * SLAB_S)
            at += 1
            if at * SLAB_S >= self._seconds:
                break
        self._end(held, run, units)
        return run.met()

    def _joined(self, held: _Held, run: "_Run", units: Indices, slab: int, unit: Indices, most: Floats) -> _Held:
        """Add the columns that are over their limits in a slab, and are not in the loop yet."""
        over = most > run.tried[:, unit] * self._window_s
        over &= np.arange(len(run.tried))[:, None] >= run.failed[unit]
        inside = np.zeros(run.tried.shape, dtype=bool)
        inside[held.scenario, held.unit] = True
        scenario, number = np.nonzero(over & ~inside[:, unit])
        if not len(number):
            return held
        new, column = np.unique(unit[number], return_inverse=True)
        points = self._arrivals.points(units[new], slab * SLAB_S - self._history, self._history)
        return _Held(
            np.concatenate((held.scenario, scenario)),
            np.concatenate((held.unit, unit[number])),
            np.concatenate((held.late, (points - points[-1])[:, column]), axis=1),
        )

    def _slab(self, held: _Held, run: "_Run", units: Indices, start: int) -> _Held:
        """Run the loop for a slab; return the columns that stay in it."""
        count = min(SLAB_S, self._seconds - start)
        present, column = np.unique(held.unit, return_inverse=True)
        points = self._arrivals.points(units[present], start - self._history, self._history + count)[:, column]
        arrived = points[self._history :]
        limit = run.tried[held.scenario, held.unit]
        mine = units[held.unit]
        peak = self._demand.peak_bytes_per_s[mine]
        gone = np.empty_like(points)
        gone[: self._history + 1] = held.late + arrived[0]
        pace = Pace(limit, peak, self._demand.in_flight_bytes[mine], self._window_s)
        pace.advance(gone, arrived[1:], self._history + 1)
        asked_s = asked_seconds(gone, limit, self._window_s)[self._history + 1 :]
        self._judge(held, run, units, start, gone[self._history :], arrived, asked_s)
        late = gone - points
        # What is late in the window, or still over the limit, goes on.
        stays = (late[-self._history - 1 :] <= -LEAST_WAITING_BYTES).any(axis=0) | (asked_s[-1] > LEAST_THROTTLE_S)
        stays &= held.scenario >= run.failed[held.unit]
        return _Held(held.scenario, held.unit, gone[-self._history - 1 :] - points[-1]).where(stays)

    def _judge(
        self, held: _Held, run: "_Run", units: Indices, start: int, gone: Floats, arrived: Floats, asked_s: Floats
    ) -> None:
        """Count what is beyond the target in a slab: see ``fluid.Replay._measure``, of which this is a part."""
        mine = units[held.unit]
        peak = self._demand.peak_bytes_per_s[mine]
        sent = np.diff(gone, axis=0)
        late = arrived - gone >= LEAST_WAITING_BYTES
        if self._target.measure is Measure.DELAY:
            second, column = np.nonzero(late[:-1])
            leaving = sent[second, column]
            middle = gone[second, column] + leaving / 2 - arrived[0, column]
            by = np.asarray(start + second + 0.5 - self._edge_s, dtype=float)
            beyond = middle < self._arrivals.since(mine[column], by, start)
            run.add(held.scenario, held.unit, np.bincount(column, leaving * beyond, len(mine)))
            return
        with_backlog = late[1:] & (sent < NEARLY * peak)
        throttled = with_backlog | (asked_s > LEAST_THROTTLE_S)
        if self._target.measure is Measure.SHARE:
            idle = (throttled | late[:-1]) & (np.diff(arrived, axis=0) <= 0)
            run.add(held.scenario, held.unit, throttled.sum(axis=0), idle.sum(axis=0))
            return
        if self._edge_s > EDGES_S[1]:
            times_s = given_s(sent, asked_s, with_backlog, self._demand.request_bytes[mine], peak)
            throttled &= times_s >= self._edge_s
        run.add(held.scenario, held.unit, (sent * throttled).sum(axis=0))

    def _end(self, held: _Held, run: "_Run", units: Indices) -> None:
        """Count what still waits at the end."""
        waiting = np.maximum(-held.late[-1], 0)
        if self._target.measure is not Measure.DELAY:
            run.waiting[held.scenario, held.unit] = waiting
            return
        mine = units[held.unit]
        rate = np.minimum(run.tried[held.scenario, held.unit], self._demand.peak_bytes_per_s[mine])
        for number in range(PIECES):
            ahead = (number + 0.5) * waiting / PIECES
            by = np.asarray(self._seconds + ahead / rate - self._edge_s, dtype=float)
            beyond = ahead - waiting < self._arrivals.since(mine, by, self._seconds)
            counts = beyond & (waiting >= LEAST_WAITING_BYTES)
            run.add(held.scenario, held.unit, counts * waiting / PIECES)


class _Run:
    """What is known of quotas on trial, [scenario, unit]."""

    def __init__(self, tried: Floats, total: Floats, active_s: Floats, target: Target, seconds: int) -> None:
        self.tried = tried
        self.failed = np.zeros(tried.shape[1], dtype=np.intp)
        """[unit]: how many scenarios, the first ones, are known to fail."""
        self.waiting = np.zeros(tried.shape)
        self._beyond = np.zeros(tried.shape)
        """Bytes, or seconds throttled."""
        self._idle_s = np.zeros(tried.shape)
        """Active seconds in which nothing came."""
        self._total = total
        self._active_s = active_s
        self._is_share = target.measure is Measure.SHARE
        self._allowed = target.most if self._is_share else 1 - target.share
        # Surely too much, however it goes on.
        self._most = np.full(len(total), target.most * seconds) if self._is_share else self._allowed * total

    def add(self, scenario: Indices, unit: Indices, beyond: Floats | Indices, idle_s: Indices | float = 0.0) -> None:
        """Count what is beyond the target, of columns that are each there once."""
        self._beyond[scenario, unit] += beyond
        self._idle_s[scenario, unit] += idle_s
        much = self._beyond[scenario, unit]
        most = self._most[unit]
        fails = much >= most if self._is_share else much > most
        np.maximum.at(self.failed, unit[fails], scenario[fails] + 1)

    def met(self) -> Bools:
        """Return which meet the target, of what all has been counted."""
        if self._is_share:
            active_s = self._active_s + self._idle_s
            fails = (self._beyond >= self._allowed * active_s) & (self._beyond > 0)
        else:
            fails = self._beyond > self._allowed * (self._total - self.waiting)
        number = np.arange(1, len(self.tried) + 1)[:, None]
        failed = np.maximum(self.failed, (number * fails).max(axis=0))
        return np.asarray(number > failed)


@dataclass(frozen=True, slots=True)
class _Surges:
    """The most that arrived in any window that ends in a slab, of each unit and slab with arrivals; by slab."""

    slab: Indices
    unit: Indices
    most: Floats

    def of(self, units: Indices, least: Floats) -> Iterator[tuple[int, tuple[Indices, Floats]]]:
        """Yield the slabs in which any of ``units`` is above its ``least``: which of them, and by how much."""
        number = np.full(int(self.unit.max(initial=-1)) + 2, -1)
        kept = units < len(number) - 1
        number[units[kept]] = np.flatnonzero(kept)
        unit = number[self.unit]
        over = np.flatnonzero((unit >= 0) & (self.most > least[unit]))
        slabs, starts, counts = np.unique(self.slab[over], return_index=True, return_counts=True)
        for slab, first, count in zip(slabs.tolist(), starts, counts, strict=True):
            part = over[first : first + count]
            yield slab, (unit[part], self.most[part])


class _Arrivals:
    """When the bytes of units arrived, sparse."""

    def __init__(self, cells: Cells, units: Indices, seconds: int) -> None:
        starts = cells.starts(int(units.max(initial=0)) + 1)
        lengths = starts[units + 1] - starts[units]
        index = np.repeat(starts[units] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        unit = np.repeat(np.arange(len(units)), lengths)
        within = cells.second[index] < seconds
        index, self._unit = index[within], unit[within]
        self._second = cells.second[index]
        self._sent = cells.sent_bytes[index]
        self._seconds = seconds
        self._key = self._unit * (seconds + 1) + self._second
        self._sums = np.concatenate(([0.0], np.cumsum(self._sent)))
        self.total = np.asarray(np.bincount(self._unit, self._sent, len(units)), dtype=float)
        active_s = np.bincount(self._unit[self._sent > 0], minlength=len(units))
        self.active_s = np.asarray(active_s, dtype=float)

    def surges(self, window_s: int) -> _Surges:
        """Return the surges over so many seconds; never too small, whatever others have used."""
        since = np.maximum(self._second - window_s + 1, 0)
        first = np.searchsorted(self._key, self._key - self._second + since)
        most = self._sums[1:] - self._sums[first] + self._sums[-1] * _BLUR
        slab = self._second // SLAB_S
        key = self._unit * (self._seconds // SLAB_S + 1) + slab
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        order = np.argsort(slab[begins], kind="stable")
        of_each = np.maximum.reduceat(most, begins) if len(begins) else most
        return _Surges(slab[begins][order], self._unit[begins][order], of_each[order])

    def points(self, units: Indices, start: int, seconds: int) -> Floats:
        """Return the curves [point, one of ``units``] of so many seconds, from ``start`` on, which may be negative."""
        first, last = self._at(units, max(start, 0)), self._at(units, max(start + seconds, 0))
        lengths = last - first
        index = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        sent = np.zeros((seconds, len(units)))
        sent[self._second[index] - start, np.repeat(np.arange(len(units)), lengths)] = self._sent[index]
        return curve(sent)

    def since(self, units: Indices, by: Floats, start: int) -> Floats:
        """Return how much had arrived of each unit by a time, evenly within a second, less what had by ``start``."""
        by = np.clip(by, 0, self._seconds)
        second = np.floor(by).astype(np.intp)
        at, after = self._at(units, second), self._at(units, second + 1)
        base = self._sums[self._at(units, start)]
        return np.asarray(self._sums[at] - base + (by - second) * (self._sums[after] - self._sums[at]))

    def _at(self, units: Indices, second: Indices | int) -> Indices:
        """Return how many cells are before a second of each unit."""
        return np.searchsorted(self._key, units * (self._seconds + 1) + np.minimum(second, self._seconds))
