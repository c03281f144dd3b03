"""What recorded demand meets under other quotas: Kafka's throttle as a closed-loop, quasi-steady fluid.

The model of one unit: however many connections it has, their requests of r bytes wait in the one line of its
counter until what it owes is over. So they send no faster than r / (X + r / P), where P is how fast they send when
nobody holds them up, and X is Kafka's law of what was sent in the window W before (``quotas.throttle.excess``).
Solved for the bytes s of one second, with c = r / 10 because the X of a request counts that request already:

    s (X + c / P) = c,  X = X0 + s / T   =>   s = 2 c / (y + sqrt(y² + 4 c / T)),  y = X0 + c / P

where X0 is what the seconds before ask for by themselves. What is not sent waits, first in, first out.
tests/reference/request_level.py is what the model is held to.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel import histogram
from analysis.kernel.demand import Arrivals, Bools, Demand, Indices, curve, gain, surge
from analysis.kernel.histogram import BINS, EDGES_S, Floats
from analysis.kernel.outcome import Carry, Outcome, StepSeries, put, weighed
from quotas.rate import Window
from quotas.throttle import excess

SLAB_S: Final = 64
"""Seconds that are measured together: long enough for NumPy, short enough for the cache."""
LEAST_THROTTLE_S: Final = 1e-6
LEAST_WAITING_BYTES: Final = 1.0
NEARLY: Final = 1 - 1e-9
"""Short of these a throttle, a backlog and what lacks to the peak are rounding errors of the curves."""
_LONGEST_TAIL_S: Final = 7200
"""How far back a carry remembers when what waits has come: it is as wide as the block, and must not grow on."""
PIECES: Final = 16
"""Of a backlog that is left at the end, by which its delays are weighed."""
_UNLIMITED: Final = 1e300
"""An infinite quota, without its infinities."""


def limits_of(limits: ArrayLike, units: int) -> Floats:
    """Return limits as [scenario, unit], infinite or NaN as a very large one.

    Raises ValueError for another shape, and for limits that are not above 0.
    """
    array = np.atleast_2d(np.asarray(limits, dtype=float))
    if array.ndim != 2 or array.shape[1] != units:
        raise ValueError(f"limits of [scenario, unit] with {units} units are needed, not {array.shape}")
    if (array <= 0).any():
        raise ValueError("a limit must be above 0; infinite is none")
    return np.where(np.isfinite(array), array, _UNLIMITED)


class Pace:
    """How much one second lets through at the most: the solution of the model's equation, column by column."""

    def __init__(self, limit: Floats, peak: Floats, in_flight: Floats, window_s: float) -> None:
        self._limit = limit
        self._peak = peak
        self._window_s = window_s
        self._flight_s = in_flight / peak
        self._double = 2 * in_flight
        self._quadruple = 4 * in_flight / limit

    def bytes_after(self, recent: Floats) -> Floats:
        """Return the most bytes of a second before which, in the window, ``recent`` bytes were sent."""
        wait_s = excess(recent / self._window_s, self._limit, self._window_s)
        wait_s += self._flight_s
        flow = self._double / (wait_s + np.sqrt(wait_s * wait_s + self._quadruple))
        return np.minimum(flow, self._peak, out=flow)

    def advance(self, sent: Floats, arrived: Floats, first: int) -> None:
        """Run the closed loop: fill the points of ``sent`` from ``first`` on, none above ``arrived``.

        Both are curves [point, column]; ``sent`` has the window before ``first`` as well.
        """
        whole = int(self._window_s)
        part = self._window_s - whole
        with np.errstate(divide="ignore"):  # far below the quota: no bound but the peak
            for second, most in enumerate(arrived):
                point = first + second
                past = sent[point - whole]
                if part:
                    past = past - part * (past - sent[point - whole - 1])
                flow = self.bytes_after(sent[point - 1] - past)
                np.minimum(flow, most - sent[point - 1], out=flow)
                np.add(sent[point - 1], flow, out=sent[point])


def replay(
    demand: Demand,
    limits: ArrayLike,
    window: Window = Window(),  # noqa: B008  frozen
    *,
    before: Carry | None = None,
    more: bool = False,
    series: bool = False,
) -> Outcome:
    """Let ``demand`` meet quotas, any number of scenarios at once.

    ``limits`` are bytes per second, [unit] or [scenario, unit]; infinite or NaN is none. ``before`` is the carry of the
    period just before; ``more`` says that another one follows, and what waits at the end is carried there; otherwise it
    is taken to leave at the rate of the limit. Raises ValueError for shapes that do not fit and for limits that are not
    above 0.
    """
    limit = limits_of(limits, demand.sent_bytes.shape[1])
    return _Replay(demand, limit, window, before).run(more=more, series=series)


class _Replay:
    """Runs the columns (scenario, unit) that are throttled at all; of the others everything is known without."""

    def __init__(self, demand: Demand, limits: Floats, window: Window, before: Carry | None) -> None:
        self.window_s = window.keep_ms / 1000
        if self.window_s < 1:
            raise ValueError(f"the model goes by seconds: a window of {window.keep_ms} ms is too short for it")
        self.demand = demand
        self.seconds, units = demand.sent_bytes.shape
        self.history = int(np.ceil(self.window_s))
        self.before = before or Carry.nothing(units, self.history, limits.shape)
        self.lead = len(self.before.tail_bytes)
        wanted = demand.sent_bytes
        self.arrived = curve(np.concatenate((self.before.tail_bytes, wanted)) if self.lead else wanted)
        self.scenario, self.unit = self._throttled_columns(limits)
        columns = len(self.unit)
        self.limit = limits[self.scenario, self.unit]
        self.peak = np.maximum(demand.peak_bytes_per_s, demand.sent_bytes.max(axis=0, initial=1))[self.unit]
        self.request = demand.request_bytes[self.unit]
        self.pace = Pace(self.limit, self.peak, demand.in_flight_bytes[self.unit], self.window_s)
        begin = self.arrived[self.lead, self.unit] - self.before.waiting_bytes[self.scenario, self.unit]
        recent = self.before.recent_bytes[:, self.scenario, self.unit]
        # The curve of what is sent: the window before a slab, and the slab.
        self.sent = np.empty((self.history + 1 + SLAB_S, columns))
        self.sent[: self.history + 1] = begin - recent.sum(axis=0) + curve(recent)
        self.arrivals = Arrivals(self.arrived, self.unit)
        self.sent_bytes, self.let_out_bytes, self.peak_waiting_bytes = np.zeros((3, columns))
        self.active_s, self.throttled_s, self.throttled_most_s, self.episodes = np.zeros((4, columns))
        self.held = (self.before.waiting_bytes >= LEAST_WAITING_BYTES)[self.scenario, self.unit]
        self.muted_until_s = self.before.muted_s[self.scenario, self.unit]
        self.throttles, self.delays = np.zeros((2, columns, BINS))

    def _throttled_columns(self, limits: Floats) -> tuple[Indices, Indices]:
        """Return what is over its limit in the open loop, or was throttled before."""
        most = surge(self.arrived[self.lead :], self.window_s) + self.before.recent_bytes.sum(axis=0)
        over = excess(most / self.window_s, limits, self.window_s) > LEAST_THROTTLE_S
        held = (self.before.waiting_bytes >= LEAST_WAITING_BYTES) | (self.before.muted_s > 0)
        scenario, unit = np.nonzero(over | held)
        return scenario, unit

    def run(self, *, more: bool, series: bool) -> Outcome:
        shape = (self.seconds, *self.before.waiting_bytes.shape)
        course = None
        if series:
            sent = np.broadcast_to(self.demand.sent_bytes[:, None], shape).copy()
            course = StepSeries(sent, np.zeros(shape), np.zeros(shape))
        if len(self.unit):
            for start in range(0, self.seconds, SLAB_S):
                self._slab(start, min(SLAB_S, self.seconds - start), course)
            if not more:
                self._let_out()
        return self._outcome(course)

    def _slab(self, start: int, count: int, course: StepSeries | None) -> None:
        first = self.lead + start
        arrived = self.arrived[first : first + count + 1, self.unit]
        self.pace.advance(self.sent, arrived[1:], self.history + 1)
        self._measure(start, arrived, course)
        self.sent[: self.history + 1] = self.sent[count : count + self.history + 1].copy()

    def _measure(self, start: int, arrived: Floats, course: StepSeries | None) -> None:
        count = len(arrived) - 1
        points = self.sent[: self.history + 1 + count]
        gone = points[self.history :]
        sent = np.diff(gone, axis=0)
        waiting = arrived - gone
        asked_s = asked_seconds(points, self.limit, self.window_s)[self.history + 1 :]
        late = waiting >= LEAST_WAITING_BYTES
        # At the peak rate nobody is held up.
        held = late[1:] & (sent < NEARLY * self.peak)
        throttled = held | (asked_s > LEAST_THROTTLE_S)
        active = throttled | late[:-1] | (arrived[1:] > arrived[:-1])

        self.sent_bytes += gone[-1] - gone[0]
        self.throttled_s += throttled.sum(axis=0)
        self.episodes += (throttled & ~np.concatenate((self.held[None], throttled[:-1]))).sum(axis=0)
        self.held = throttled[-1]
        self.active_s += active.sum(axis=0)
        np.maximum(self.peak_waiting_bytes, waiting[1:].max(axis=0), out=self.peak_waiting_bytes)
        throttle_s = np.where(
            throttled, np.maximum(given_s(sent, asked_s, held, self.request, self.peak), EDGES_S[1]), 0
        )
        seconds = np.arange(start, start + count)[:, None]
        until_s = np.concatenate((self.muted_until_s[None], np.where(throttled, seconds + throttle_s, 0)))
        np.maximum.accumulate(until_s, axis=0, out=until_s)
        self.muted_until_s = until_s[-1]
        self.throttled_most_s += (throttled | (until_s[:-1] > seconds)).sum(axis=0)
        second, column = np.nonzero(throttled)
        histogram.add(self.throttles, column, throttle_s[second, column], sent[second, column])
        # A byte leaves in the middle of its second, and has come where the curve of arrivals was that high.
        column, second = np.nonzero(late[:-1].T)
        leaving = sent[second, column]
        came = self.arrivals.point_of(column, gone[second, column] + leaving / 2) - self.lead
        histogram.add(self.delays, column, np.maximum(start + second + 0.5 - came, 0), leaving)
        if course is not None:
            course.sent_bytes[start : start + count, self.scenario, self.unit] = sent
            course.waiting_bytes[start : start + count, self.scenario, self.unit] = waiting[1:]
            course.throttle_s[start : start + count, self.scenario, self.unit] = throttle_s

    def _let_out(self) -> None:
        """Weigh the delays of what waits at the end, as if nothing came after it."""
        rate = np.minimum(self.limit, self.peak)
        gone = self.sent[self.history]
        waiting = self.arrived[-1, self.unit] - gone
        columns = np.flatnonzero(waiting >= LEAST_WAITING_BYTES)
        piece = waiting[columns] / PIECES
        self.let_out_bytes[columns] = waiting[columns]
        for number in range(PIECES):
            ahead = (number + 0.5) * piece
            came = self.arrivals.point_of(columns, gone[columns] + ahead) - self.lead
            histogram.add(self.delays, columns, self.seconds + ahead / rate[columns] - came, piece)

    def _outcome(self, course: StepSeries | None) -> Outcome:
        """Put the columns among those that were never throttled: these passed as they came."""
        shape = self.before.waiting_bytes.shape
        demand = self.demand.sent_bytes
        at = (self.scenario, self.unit)
        total = np.broadcast_to(demand.sum(axis=0), shape)
        waiting = np.maximum(self.arrived[-1, self.unit] - self.sent[self.history], 0)
        history = np.concatenate(
            (self.before.recent_bytes, np.broadcast_to(demand[:, None], (len(demand), *shape))[-self.history :])
        )[-self.history :]
        history[:, self.scenario, self.unit] = np.diff(self.sent[: self.history + 1], axis=0)
        nothing = np.zeros(shape)
        return Outcome(
            seconds=self.seconds,
            demand_bytes=total.copy(),
            sent_bytes=put(total, at, self.sent_bytes),
            waiting_bytes=put(nothing, at, waiting),
            peak_waiting_bytes=put(nothing, at, self.peak_waiting_bytes),
            active_s=put(np.broadcast_to((demand > 0).sum(axis=0), shape), at, self.active_s),
            throttled_s=put(nothing, at, self.throttled_s),
            throttled_most_s=put(nothing, at, self.throttled_most_s),
            episodes=put(nothing, at, self.episodes),
            throttles=weighed(total, at, self.throttles, self.sent_bytes),
            delays=weighed(total, at, self.delays, self.sent_bytes + self.let_out_bytes),
            carry=Carry(
                self._tail(waiting),
                put(nothing, at, waiting),
                history,
                put(nothing, at, np.maximum(self.muted_until_s - self.seconds, 0)),
            ),
            series=course,
        )

    def _tail(self, waiting: Floats) -> Floats:
        """Return the demand from the second on in which the oldest of what waits has come."""
        columns = np.flatnonzero(waiting >= LEAST_WAITING_BYTES)
        if not len(columns):
            return np.zeros((0, len(self.demand.request_bytes)))
        oldest = int(self.arrivals.point_of(columns, self.sent[self.history][columns]).min())
        return np.diff(self.arrived[max(oldest, len(self.arrived) - 1 - _LONGEST_TAIL_S) :], axis=0)


def asked_seconds(points: Floats, limit: Floats, window_s: float) -> Floats:
    """Return [point, column] the throttle time that is asked for at each point of a curve of what was sent."""
    return excess(gain(points, window_s) / window_s, limit, window_s)


def given_s(sent: Floats, asked_s: Floats, held: Bools, request: Floats, peak: Floats) -> Floats:
    """Return [second, column] the throttle times that requests were given, from what passed: s = r / (X + r / P)."""
    with np.errstate(divide="ignore"):
        cycle_s = request * (1 / sent - 1 / peak)
    return np.asarray(np.where(held, np.maximum(asked_s, cycle_s), asked_s))
