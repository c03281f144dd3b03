"""Recorded demand under other quotas: Kafka's throttle as a closed-loop, quasi-steady fluid, second by second.

The model of one unit: requests of r bytes, of all its connections, wait in the queue of its counter until its debt is
paid. So they send no faster than r / (X + r / P), where P is their unthrottled rate, and X is the throttle time by
Kafka's formula for the bytes sent in the window W before (``quotas.throttle.excess``).
Solved for the bytes s of one second, with c = r / 10 because the X of a request counts that request already:

    s (X + c / P) = c,  X = X0 + s / T   =>   s = 2 c / (y + sqrt(y² + 4 c / T)),  y = X0 + c / P

where X0 is X without the bytes of this second. The rest waits, first in, first out. Tests compare the model with
tests/reference/request_level.py, which simulates each request.

A column is a unit under the limit of a scenario. It goes through the loop only while it is held up or over its limit;
otherwise its bytes pass as they arrive. A curve is a cumulative sum of bytes at points in time, one more than seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from analysis.kernel.arrays import Bools, Floats, Indices
from analysis.kernel.demand import Arrivals, Demand
from analysis.kernel.histogram import EDGES_S
from quotas.rate import Window
from quotas.throttle import excess

SLAB_S: Final = 64
"""Seconds per slab: long enough for NumPy, short enough for the cache."""
_LEAST_THROTTLE_S: Final = 1e-6
_LEAST_WAITING_BYTES: Final = 1.0
_NEARLY: Final = 1 - 1e-9
"""Rounding errors of the curves: smaller throttles and backlogs are none, and a rate nearer to the peak is the peak."""
_PIECES: Final = 16
"""The parts into which a backlog at the end is divided to compute its delays."""
_UNLIMITED: Final = 1e300
"""A finite limit in place of infinity."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A set of columns."""

    scenario: Indices
    unit: Indices

    @property
    def at(self) -> tuple[Indices, Indices]:
        """Their indices in an array [scenario, unit]."""
        return self.scenario, self.unit


@dataclass(frozen=True)
class Slab:
    """Some seconds of the columns in the loop: arrays [second, column], curves [point, column]."""

    start: int
    columns: Columns
    arrived: Floats
    """The curve of arrivals, which begins at 0."""
    gone: Floats
    """The curve of bytes sent, which begins at minus the backlog."""
    asked_s: Floats
    """The throttle time by Kafka's formula at the end of each second."""
    demand: Demand
    arrivals: Arrivals

    @cached_property
    def sent_bytes(self) -> Floats:
        return np.diff(self.gone, axis=0)

    @cached_property
    def waiting_bytes(self) -> Floats:
        """The backlog at each point."""
        return self.arrived - self.gone

    @cached_property
    def late(self) -> Bools:
        """Whether there is a backlog, at each point."""
        return self.waiting_bytes >= _LEAST_WAITING_BYTES

    @cached_property
    def held(self) -> Bools:
        """Whether a throttle causes the backlog: a column that sends at its peak rate is not held up."""
        return self.late[1:] & (self.sent_bytes < _NEARLY * self.demand.peak_bytes_per_s[self.columns.unit])

    @cached_property
    def throttled(self) -> Bools:
        return self.held | (self.asked_s > _LEAST_THROTTLE_S)

    @property
    def active_anyway(self) -> Bools:
        """Whether the column is active in a second without arrivals: throttled, or sending a backlog."""
        return (self.throttled | self.late[:-1]) & (np.diff(self.arrived, axis=0) <= 0)

    def throttle_s(self) -> Floats:
        """Return the throttle times of requests, from the bytes sent: s = r / (X + r / P)."""
        unit = self.columns.unit
        with np.errstate(divide="ignore"):
            cycle_s = self.demand.request_bytes[unit] * (1 / self.sent_bytes - 1 / self.demand.peak_bytes_per_s[unit])
        given_s = np.where(self.held, np.maximum(self.asked_s, cycle_s), self.asked_s)
        return np.where(self.throttled, np.maximum(given_s, EDGES_S[1]), 0)

    def delays(self) -> tuple[Indices, Floats, Floats]:
        """Return the delays of bytes sent from a backlog: column, seconds and bytes."""
        column, second = np.nonzero(self.late[:-1].T)
        leaving = self.sent_bytes[second, column]
        # A byte leaves in the middle of its second.
        middle = self.gone[second, column] + leaving / 2
        came_s = self.arrivals.time_s(self.columns.unit[column], self.start, middle)
        return column, np.maximum(self.start + second + 0.5 - came_s, 0), leaving


@dataclass(frozen=True, slots=True)
class Left:
    """The columns with a backlog at the end."""

    columns: Columns
    waiting_bytes: Floats
    """[column]."""
    delays: tuple[Indices, Floats, Floats]
    """As ``Slab.delays``, if the backlog is sent at the rate of the limit."""


Visit = Callable[[Slab], Bools]
"""Takes a slab, and returns [column] whether to continue its replay."""


def replay(demand: Demand, limits: Floats, window: Window, visit: Visit) -> Left:
    """Replay ``demand`` under ``limits`` [scenario, unit], in bytes per second, slab by slab."""
    window_s = window.keep_ms / 1000
    if window_s < 1:
        raise ValueError(f"the model goes by seconds: a window of {window.keep_ms} ms is too short for it")
    return _Loop(demand, np.minimum(limits, _UNLIMITED), window_s, visit).run()


@dataclass(frozen=True, slots=True)
class _InLoop:
    """Columns in the loop between two slabs."""

    columns: Columns
    gone: Floats
    """[point, column] the curve of bytes sent at the last points, minus the arrivals until the last of them."""


class _Loop:
    def __init__(self, demand: Demand, limits: Floats, window_s: float, visit: Visit) -> None:
        self._demand = demand
        self._limits = limits
        self._window_s = window_s
        self._history = int(np.ceil(window_s))
        self._visit = visit
        self._arrivals = Arrivals(demand)
        self._dismissed = np.zeros(limits.shape, dtype=bool)

    def run(self) -> Left:
        nobody = np.zeros(0, dtype=np.intp)
        held = _InLoop(Columns(nobody, nobody), np.zeros((self._history + 1, 0)))
        least = self._limits.min(axis=0, initial=_UNLIMITED) * self._window_s
        surges = self._arrivals.surges(self._history, SLAB_S, least)
        end = -(-self._demand.seconds // SLAB_S)
        at = 0
        while at < end:
            if at in surges:
                held = self._joined(held, at * SLAB_S, *surges.pop(at))
            if len(held.columns.unit):
                held = self._slab(held, at * SLAB_S)
                at += 1
            else:
                at = next(iter(surges), end)
        return self._left(held)

    def _joined(self, held: _InLoop, start: int, unit: Indices, most: Floats) -> _InLoop:
        """Add the columns that exceed their limits in a slab and are not in the loop yet."""
        absent = ~self._dismissed
        absent[held.columns.at] = False
        scenario, number = np.nonzero((most > self._limits[:, unit] * self._window_s) & absent[:, unit])
        new, column = np.unique(unit[number], return_inverse=True)
        points = self._arrivals.points(new, start - self._history, self._history)
        return _InLoop(
            Columns(
                np.concatenate((held.columns.scenario, scenario)),
                np.concatenate((held.columns.unit, unit[number])),
            ),
            np.concatenate((held.gone, (points - points[-1])[:, column]), axis=1),
        )

    def _slab(self, held: _InLoop, start: int) -> _InLoop:
        """Run the loop for a slab; return the columns that stay in it."""
        history, columns = self._history, held.columns
        count = min(SLAB_S, self._demand.seconds - start)
        units, column = np.unique(columns.unit, return_inverse=True)
        arrived = self._arrivals.points(units, start - history, history + count)
        arrived = (arrived - arrived[history])[:, column]
        gone = np.concatenate((held.gone, np.empty((count, len(column)))))
        law = _Law(self._demand, columns.unit, self._limits[columns.at], self._window_s)
        law.advance(gone, arrived[history + 1 :])
        asked_s = law.asked_s(gone)
        slab = Slab(start, columns, arrived[history:], gone[history:], asked_s, self._demand, self._arrivals)
        wanted = self._visit(slab)
        self._dismissed[columns.at] = ~wanted
        # Columns with a backlog within the window, or still over the limit, stay.
        late = (arrived - gone)[-history - 1 :] >= _LEAST_WAITING_BYTES
        stays = wanted & (late.any(axis=0) | (asked_s[-1] > _LEAST_THROTTLE_S))
        behind = gone[-history - 1 :] - arrived[-1]
        return _InLoop(Columns(columns.scenario[stays], columns.unit[stays]), behind[:, stays])

    def _left(self, held: _InLoop) -> Left:
        waiting = -held.gone[-1]
        late = waiting >= _LEAST_WAITING_BYTES
        columns = Columns(held.columns.scenario[late], held.columns.unit[late])
        waiting = waiting[late]
        rate = np.minimum(self._limits[columns.at], self._demand.peak_bytes_per_s[columns.unit])
        column = np.repeat(np.arange(len(waiting)), _PIECES)
        part = np.tile((np.arange(_PIECES) + 0.5) / _PIECES, len(waiting))
        ahead = part * waiting[column]
        end = self._demand.seconds
        came_s = self._arrivals.time_s(columns.unit[column], end, ahead - waiting[column])
        delays = (column, end + ahead / rate[column] - came_s, waiting[column] / _PIECES)
        return Left(columns, waiting, delays)


class _Law:
    """Solves the model's equation for each column."""

    def __init__(self, demand: Demand, unit: Indices, limit: Floats, window_s: float) -> None:
        in_flight = demand.in_flight_bytes[unit]
        self._limit = limit
        self._peak = demand.peak_bytes_per_s[unit]
        self._window_s = window_s
        self._whole = int(window_s)
        self._part = window_s - self._whole
        self._first = int(np.ceil(window_s)) + 1
        self._flight_s = in_flight / self._peak
        self._double = 2 * in_flight
        self._quadruple = 4 * in_flight / limit

    def advance(self, gone: Floats, arrived: Floats) -> None:
        """Continue the curve of bytes sent, which begins with a window; ``arrived`` is its upper bound."""
        for point, most in enumerate(arrived, self._first):
            before = gone[point - 1]
            past = gone[point - self._whole]
            if self._part:
                past = past - self._part * (past - gone[point - self._whole - 1])
            wait_s = excess((before - past) / self._window_s, self._limit, self._window_s)
            wait_s += self._flight_s
            with np.errstate(divide="ignore"):  # far below the quota only the peak bounds the rate
                flow = self._double / (wait_s + np.sqrt(wait_s * wait_s + self._quadruple))
            np.minimum(flow, self._peak, out=flow)
            np.minimum(flow, most - before, out=flow)
            np.add(before, flow, out=gone[point])

    def asked_s(self, gone: Floats) -> Floats:
        """Return [second, column] the throttle time at the end of each second behind the window."""
        past = gone[self._first - self._whole : len(gone) - self._whole]
        if self._part:
            past = past - self._part * (past - gone[self._first - self._whole - 1 : len(gone) - self._whole - 1])
        sent = gone[self._first :] - past
        return excess(sent / self._window_s, self._limit, self._window_s)
