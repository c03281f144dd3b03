"""What recorded demand meets under other quotas: Kafka's throttle as a closed-loop, quasi-steady fluid.

The model of one unit: however many connections it has, their requests of r bytes wait in the one line of its
counter until what it owes is over. So they send no faster than r / (X + r / P), where P is how fast they send when
nobody holds them up, and X is Kafka's law of what was sent in the window W before (``quotas.throttle.excess``).
Solved for the bytes s of one second, with c = r / 10 because the X of a request counts that request already:

    s (X + c / P) = c,  X = X0 + s / T   =>   s = 2 c / (y + sqrt(y² + 4 c / T)),  y = X0 + c / P

where X0 is what the seconds before ask for by themselves. What is not sent waits, first in, first out.
tests/reference/request_level.py is what the model is held to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel import histogram
from analysis.kernel.demand import Arrivals, Bools, Demand, Indices, curve, gain, surge
from analysis.kernel.histogram import BINS, EDGES_S, Floats
from analysis.kernel.limits import limits_of
from analysis.kernel.outcome import Carry, Outcome, StepSeries, put, weighed
from analysis.kernel.pace import Pace
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


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds besides the quota."""

    patience_s: int | None = None
    """After how many seconds a client gives up what waits (``delivery.timeout.ms``)."""


def replay(
    demand: Demand,
    limits: ArrayLike,
    window: Window = Window(),  # noqa: B008  frozen
    *,
    changes: Mapping[int, ArrayLike] | None = None,
    bounds: Bounds = Bounds(),
    before: Carry | None = None,
    more: bool = False,
    series: bool = False,
) -> Outcome:
    """Let ``demand`` meet quotas, any number of scenarios at once.

    ``limits`` are bytes per second, [unit] or [scenario, unit]; infinite or NaN is none. ``changes`` has the limits
    that hold from a second on (from 1). ``before`` is the carry of the period just before; ``more`` says that another
    one follows, and what waits at the end is carried there; otherwise it is taken to leave at the rate of the limit.
    Raises ValueError for shapes that do not fit and for limits that are not above 0.
    """
    units = demand.sent_bytes.shape[1]
    steps = {0: limits_of(limits, units)} | {at: limits_of(to, units) for at, to in (changes or {}).items()}
    if len({step.shape for step in steps.values()}) > 1:
        raise ValueError("every change of limits needs as many scenarios as there are")
    return Replay(demand, steps, window, bounds, before).run(more=more, series=series)


def _nothing(units: int, history: int, shape: tuple[int, int]) -> Carry:
    return Carry(np.zeros((0, units)), np.zeros(shape), np.zeros((history, *shape)), np.zeros(shape))


class Replay:
    """Runs the columns (scenario, unit) that are throttled at all; of the others everything is known without."""

    def __init__(
        self, demand: Demand, steps: dict[int, Floats], window: Window, bounds: Bounds, before: Carry | None
    ) -> None:
        self.window_s = window.keep_ms / 1000
        if self.window_s < 1:
            raise ValueError(f"the model goes by seconds: a window of {window.keep_ms} ms is too short for it")
        self.demand = demand
        self.steps = steps
        self.bounds = bounds
        self.seconds, units = demand.sent_bytes.shape
        self.history = int(np.ceil(self.window_s))
        shape = (len(steps[0]), units)
        self.before = before or _nothing(units, self.history, shape)
        self.lead = len(self.before.tail_bytes)
        wanted = demand.sent_bytes
        self.arrived = curve(np.concatenate((self.before.tail_bytes, wanted)) if self.lead else wanted)
        self.scenario, self.unit = self._throttled_columns()
        columns = len(self.unit)

        self.peak = np.maximum(demand.peak_bytes_per_s, demand.sent_bytes.max(axis=0, initial=1))[self.unit]
        self.in_flight = demand.in_flight_bytes[self.unit]
        self.request = demand.request_bytes[self.unit]
        # What was sent and what is gone are two curves, because clients may give up.
        self.gone = np.empty((SLAB_S + 1, columns))
        self.gone[0] = self.arrived[self.lead, self.unit] - self.before.waiting_bytes[self.scenario, self.unit]
        recent = self.before.recent_bytes[:, self.scenario, self.unit]
        self.sent = np.empty((self.history + 1 + SLAB_S, columns))
        self.sent[: self.history + 1] = self.gone[0] - recent.sum(axis=0) + curve(recent)

        self.arrivals = Arrivals(self.arrived, self.unit)
        self.sent_bytes, self.expired_bytes, self.let_out_bytes, self.peak_waiting_bytes = np.zeros((4, columns))
        self.active_s, self.throttled_s, self.throttled_most_s, self.episodes = np.zeros((4, columns))
        self.held = (self.before.waiting_bytes >= LEAST_WAITING_BYTES)[self.scenario, self.unit]
        self.muted_until_s = self.before.muted_s[self.scenario, self.unit]
        self.throttles, self.delays = np.zeros((2, columns, BINS))

    def _throttled_columns(self) -> tuple[Indices, Indices]:
        """Return what is over its limit in the open loop, or was throttled before."""
        least = np.minimum.reduce(list(self.steps.values()))
        most = surge(self.arrived[self.lead :], self.window_s) + self.before.recent_bytes.sum(axis=0)
        over = excess(most / self.window_s, least, self.window_s) > LEAST_THROTTLE_S
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
            begins = sorted(self.steps)
            for begin, end in zip(begins, [*begins[1:], self.seconds], strict=True):
                limit = self.steps[begin][self.scenario, self.unit]
                for start in range(begin, min(end, self.seconds), SLAB_S):
                    self._slab(start, min(SLAB_S, end - start, self.seconds - start), limit, course)
            if not more:
                self._let_out(self.steps[begins[-1]][self.scenario, self.unit])
        return self._outcome(course)

    def _slab(self, start: int, count: int, limit: Floats, course: StepSeries | None) -> None:
        first = self.lead + start
        arrived = self.arrived[first : first + count + 1, self.unit]
        self._advance(first, arrived, limit)
        self._measure(start, arrived, limit, course)
        self.sent[: self.history + 1] = self.sent[count : count + self.history + 1].copy()
        self.gone[0] = self.gone[count]

    def _advance(self, first: int, arrived: Floats, limit: Floats) -> None:
        """Run the closed loop for the seconds between the points of ``arrived``: a dozen operations each."""
        sent = self.sent
        gone = self.gone
        window_s = self.window_s
        whole = int(window_s)
        part = window_s - whole
        patience_s = self.bounds.patience_s
        pace = Pace(limit, self.peak, self.in_flight, window_s)
        with np.errstate(divide="ignore"):  # far below the quota: no bound but the peak
            for second in range(len(arrived) - 1):
                point = self.history + 1 + second
                past = sent[point - whole]
                if part:
                    past = past - part * (past - sent[point - whole - 1])
                flow = pace.bytes_after(sent[point - 1] - past)
                np.minimum(flow, arrived[second + 1] - gone[second], out=flow)
                np.add(sent[point - 1], flow, out=sent[point])
                np.add(gone[second], flow, out=gone[second + 1])
                if patience_s is not None and first + second + 1 >= patience_s:
                    overdue = self.arrived[first + second + 1 - patience_s, self.unit]
                    np.maximum(gone[second + 1], overdue, out=gone[second + 1])

    def _measure(self, start: int, arrived: Floats, limit: Floats, course: StepSeries | None) -> None:
        count = len(arrived) - 1
        points = self.sent[: self.history + 1 + count]
        sent = np.diff(points[self.history :], axis=0)
        gone = self.gone[: count + 1]
        waiting = arrived - gone
        asked_s = self._asked_s(points, limit)
        late = waiting >= LEAST_WAITING_BYTES
        # At the peak rate nobody is held up: so leaves what waits when a limit has been raised.
        held = late[1:] & (sent < NEARLY * self.peak)
        throttled = self._throttled(start, held, asked_s, sent)
        active = throttled | late[:-1] | (arrived[1:] > arrived[:-1])

        self.sent_bytes += points[-1] - points[self.history]
        self.throttled_s += throttled.sum(axis=0)
        self.episodes += (throttled & ~np.concatenate((self.held[None], throttled[:-1]))).sum(axis=0)
        self.held = throttled[-1]
        self.active_s += active.sum(axis=0)
        np.maximum(self.peak_waiting_bytes, waiting[1:].max(axis=0), out=self.peak_waiting_bytes)
        throttle_s = self._throttle_s(sent, asked_s, held, throttled)
        seconds = np.arange(start, start + count)[:, None]
        until_s = np.concatenate((self.muted_until_s[None], np.where(throttled, seconds + throttle_s, 0)))
        np.maximum.accumulate(until_s, axis=0, out=until_s)
        self.muted_until_s = until_s[-1]
        self.throttled_most_s += (throttled | (until_s[:-1] > seconds)).sum(axis=0)
        self._note(throttled, throttled | (until_s[:-1] > seconds), active, waiting)
        second, column = np.nonzero(throttled)
        histogram.add(self.throttles, column, throttle_s[second, column], sent[second, column])
        # A byte leaves in the middle of its second, and has come where the curve of arrivals was that high.
        column, second = np.nonzero(late[:-1].T)
        leaving = sent[second, column]
        came = self.arrivals.point_of(column, gone[second, column] + leaving / 2) - self.lead
        histogram.add(self.delays, column, np.maximum(start + second + 0.5 - came, 0), leaving)
        if self.bounds.patience_s is not None:
            self._expire(np.diff(gone, axis=0) - sent)
        if course is not None:
            course.sent_bytes[start : start + count, self.scenario, self.unit] = sent
            course.waiting_bytes[start : start + count, self.scenario, self.unit] = waiting[1:]
            course.throttle_s[start : start + count, self.scenario, self.unit] = throttle_s

    def _asked_s(self, points: Floats, limit: Floats) -> Floats:
        """Return [second, column] the throttle time that is asked for at the end of each second."""
        return excess(gain(points, self.window_s)[self.history + 1 :] / self.window_s, limit, self.window_s)

    def _throttled(self, start: int, held: Bools, asked_s: Floats, sent: Floats) -> Bools:  # noqa: ARG002  Coupled needs them
        """Return in which seconds of a slab, from ``start`` on, each column is throttled."""
        return np.asarray(held | (asked_s > LEAST_THROTTLE_S))

    def _note(self, throttled: Bools, at_most: Bools, active: Bools, waiting: Floats) -> None:
        """Take note of a slab that was measured; ``waiting`` is by point, all else by second."""

    def _throttle_s(self, sent: Floats, asked_s: Floats, held: Bools, throttled: Bools) -> Floats:
        """Return the throttle times that requests were given, from what passed: s = r / (X + r / P)."""
        with np.errstate(divide="ignore"):
            cycle_s = self.request * (1 / sent - 1 / self.peak)
        throttle_s = np.where(held, np.maximum(asked_s, cycle_s), asked_s)
        return np.where(throttled, np.maximum(throttle_s, EDGES_S[1]), 0)

    def _expire(self, expired: Floats) -> None:
        second, column = np.nonzero(expired >= LEAST_WAITING_BYTES)
        self.expired_bytes += expired.sum(axis=0)
        waited_s = np.full(len(second), float(self.bounds.patience_s or 0))
        histogram.add(self.delays, column, waited_s, expired[second, column])

    def _let_out(self, limit: Floats) -> None:
        """Weigh the delays of what waits at the end, as if nothing came after it."""
        rate = np.minimum(limit, self.peak)
        gone = self.gone[0]
        waiting = self.arrived[-1, self.unit] - gone
        columns = np.flatnonzero(waiting >= LEAST_WAITING_BYTES)
        piece = waiting[columns] / PIECES
        self.let_out_bytes[columns] = waiting[columns]
        for number in range(PIECES):
            ahead = (number + 0.5) * piece
            came = self.arrivals.point_of(columns, gone[columns] + ahead) - self.lead
            leaves = self.seconds + ahead / rate[columns]
            if self.bounds.patience_s is not None:
                leaves = np.minimum(leaves, came + self.bounds.patience_s)
            histogram.add(self.delays, columns, leaves - came, piece)

    def _outcome(self, course: StepSeries | None) -> Outcome:
        """Put the columns among those that were never throttled: these passed as they came."""
        shape = self.before.waiting_bytes.shape
        demand = self.demand.sent_bytes
        at = (self.scenario, self.unit)
        total = np.broadcast_to(demand.sum(axis=0), shape)
        waiting = np.maximum(self.arrived[-1, self.unit] - self.gone[0], 0)
        history = np.concatenate(
            (self.before.recent_bytes, np.broadcast_to(demand[:, None], (len(demand), *shape))[-self.history :])
        )[-self.history :]
        history[:, self.scenario, self.unit] = np.diff(self.sent[: self.history + 1], axis=0)
        return Outcome(
            seconds=self.seconds,
            demand_bytes=total.copy(),
            sent_bytes=put(total, at, self.sent_bytes),
            expired_bytes=put(np.zeros(shape), at, self.expired_bytes),
            waiting_bytes=put(np.zeros(shape), at, waiting),
            peak_waiting_bytes=put(np.zeros(shape), at, self.peak_waiting_bytes),
            active_s=put(np.broadcast_to((demand > 0).sum(axis=0), shape), at, self.active_s),
            throttled_s=put(np.zeros(shape), at, self.throttled_s),
            throttled_most_s=put(np.zeros(shape), at, self.throttled_most_s),
            episodes=put(np.zeros(shape), at, self.episodes),
            throttles=weighed(total, at, self.throttles, self.sent_bytes),
            delays=weighed(total, at, self.delays, self.sent_bytes + self.expired_bytes + self.let_out_bytes),
            carry=Carry(
                self._tail(waiting),
                put(np.zeros(shape), at, waiting),
                history,
                put(np.zeros(shape), at, np.maximum(self.muted_until_s - self.seconds, 0)),
            ),
            series=course,
        )

    def _tail(self, waiting: Floats) -> Floats:
        """Return the demand from the second on in which the oldest of what waits has come."""
        columns = np.flatnonzero(waiting >= LEAST_WAITING_BYTES)
        if not len(columns):
            return np.zeros((0, len(self.demand.request_bytes)))
        oldest = int(self.arrivals.point_of(columns, self.gone[0][columns]).min())
        return np.diff(self.arrived[max(oldest, len(self.arrived) - 1 - _LONGEST_TAIL_S) :], axis=0)
