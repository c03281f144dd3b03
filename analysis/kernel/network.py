"""Flows that are charged to several counters each: a quota and caps, which other flows are charged to as well.

What of a flow passes is charged to all its counters in the same moment, and goes when all of them let it
(docs/decisions/0022). So in each second every counter lets pass what Kafka's law (``fluid``) makes of all that was
charged to it; what more is wanted of it is divided as its line does, in turns: each flow that wants no more than its
share has all it wants, the others have the same by their ``weight``. The quota comes first, then the caps from the
narrowest to the widest.

Who is held by a narrower counter as well has fewer turns in the line: Kafka's window frees a sample at once, which goes
in a moment, to those who are there. Where the narrower one tells X' and this one X < X', one request of u bytes comes
through the narrower one at a time, X' after the one before, and goes when the o bytes of all others in the line have
gone, u in each X. So while the others go round once, of it go

    u o / (o + (X' / X - 1) u)

bytes, and not its ``weight``. tests/reference/together.py has every request of the same, and is what the model is held
to (tests/analysis/kernel/test_network_agreement.py).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.demand import Bools, Demand, Indices, curve, gain
from analysis.kernel.fluid import LEAST_THROTTLE_S, SLAB_S, Bounds, Replay
from analysis.kernel.histogram import BINS, Floats
from analysis.kernel.limits import limits_of
from analysis.kernel.outcome import Carry, Outcome, StepSeries
from quotas.rate import Window
from quotas.throttle import excess

_IN_FLIGHT: Final = 0.1
"""Of a request, as ``Demand.in_flight_bytes``."""
_TURNS: Final = 16
"""In which the shares of a line are found; what is left after them is less than a request."""


@dataclass(frozen=True, slots=True)
class Network:
    """Which counters each flow is charged to."""

    counters: Indices
    """[level, flow]: that of its quota, then of its caps, the narrowest first; -1: none. A counter is on one level,
    of whichever flows."""
    request_bytes: Floats
    """[counter]: the mean of what is charged to it."""
    weight: Floats
    """[flow]: its part of what its line lets go, beside others that wait as well."""


def replay_together(
    demand: Demand,
    network: Network,
    limits: Floats,
    window: Window = Window(),  # noqa: B008  frozen
    *,
    before: Carry | None = None,
    more: bool = False,
) -> Outcome:
    """Let flows, the units of ``demand``, meet the ``limits`` [scenario, counter]: as ``fluid.replay``.

    The outcome is [scenario, counter]: a quota's is about all that its flows meet, whichever counter holds them; a cap
    is throttled while it holds anybody itself. Its ``carry`` is that of the flows.
    """
    counters = limits_of(limits, len(network.request_bytes))
    return Coupled(demand, network, counters, window, before).run(more=more, series=False)


class Coupled(Replay):
    """Runs all flows of all scenarios side by side, and the counters that they share."""

    def __init__(self, demand: Demand, network: Network, limits: Floats, window: Window, before: Carry | None) -> None:
        scenarios, counters = limits.shape
        flows = network.counters.shape[1]
        self._shape = (scenarios, counters)
        # One after the other, and behind all of them one without a limit, for flows that have none on a level.
        self._levels = np.tile(network.counters, scenarios) + np.repeat(np.arange(scenarios) * counters, flows)
        self._levels[np.tile(network.counters < 0, scenarios)] = scenarios * counters
        level, self._member = np.nonzero(self._levels < scenarios * counters)
        self._of_member = self._levels[level, self._member]
        order = np.argsort(self._of_member, kind="stable")
        self._member, self._of_member = self._member[order], self._of_member[order]
        self._there, self._starts = np.unique(self._of_member, return_index=True)
        self._is_quota = np.zeros(scenarios * counters + 1, dtype=bool)
        self._is_quota[self._levels[0]] = True
        self._limits = np.append(limits.ravel(), np.inf)
        self._limits[~np.isfinite(self._limits)] = 1e300
        effective = self._limits[self._levels].min(axis=0).reshape(scenarios, flows)
        super().__init__(demand, {0: effective}, window, Bounds(), before)
        self._weight = np.tile(network.weight, scenarios)
        request = np.append(np.tile(network.request_bytes, scenarios), 1.0)
        self._in_flight = _IN_FLIGHT * np.maximum(request, 1)
        # [level, flow]: its part of one request, and what goes of all others while the line goes round once.
        round_ = self._together(self._weight)
        one = np.divide(request, round_, out=np.ones(len(request)), where=round_ > request)
        self._one = self._weight * one[self._levels]
        self._others = round_[self._levels] - self._weight
        self._all_peak = np.maximum(self._together(self.peak), 1)
        recent = self.before.recent_bytes[:, self.scenario, self.unit]
        self._charged = np.empty((self.history + 1 + SLAB_S, len(self._limits)))
        self._charged[: self.history + 1] = curve(np.array([self._together(each) for each in recent]))
        self._asked_of_counters = np.zeros((0, len(self._limits)))
        self._strictest = np.zeros((0, len(self.unit)), dtype=np.intp)
        self._held_s = np.zeros((len(self._levels), len(self.unit)))
        count = len(self._limits)
        self._active, self._throttled_c, self._most_c, self._episodes_c, self._waiting_c = np.zeros((5, count))
        self._held_c = np.zeros(count, dtype=bool)

    def _throttled_columns(self) -> tuple[Indices, Indices]:
        """Return all: what one flow sends may be what another one waits for."""
        scenarios, flows = self.steps[0].shape
        scenario, unit = np.divmod(np.arange(scenarios * flows), flows)
        return scenario, unit

    def _together(self, flow: Floats) -> Floats:
        """Return [counter] the sum of what its flows have."""
        return np.asarray(np.bincount(self._of_member, flow[self._member], len(self._limits)), dtype=float)

    def _slab(self, start: int, count: int, limit: Floats, course: StepSeries | None) -> None:
        super()._slab(start, count, limit, course)
        self._charged[: self.history + 1] = self._charged[count : count + self.history + 1].copy()

    def _advance(self, first: int, arrived: Floats, limit: Floats) -> None:  # noqa: ARG002  the counters' own hold
        charged, window_s = self._charged, self.window_s
        flight_s = self._in_flight / self._all_peak
        double, quadruple = 2 * self._in_flight, 4 * self._in_flight / self._limits
        past = self._past(self.history)
        with np.errstate(divide="ignore"):  # far below the quota: no bound but the peak
            for second in range(len(arrived) - 1):
                point = self.history + 1 + second
                told_s = excess((charged[point - 1] - past) / window_s, self._limits, window_s)
                past = self._past(point)
                wait_s = excess((charged[point - 1] - past) / window_s, self._limits, window_s)
                wait_s += flight_s
                room = double / (wait_s + np.sqrt(wait_s * wait_s + quadruple))
                flow = np.minimum(self.peak, arrived[second + 1] - self.gone[second])
                narrower_s, one = np.zeros(len(flow)), self._weight
                for level, counter in enumerate(self._levels):
                    mine_s = told_s[counter]
                    flow = self._shared(flow, counter, room, self._turns(level, mine_s, narrower_s, one))
                    one = np.where(mine_s > narrower_s, self._one[level], one)
                    np.maximum(narrower_s, mine_s, out=narrower_s)
                np.add(self.sent[point - 1], flow, out=self.sent[point])
                np.add(self.gone[second], flow, out=self.gone[second + 1])
                np.add(charged[point - 1], self._together(flow), out=charged[point])

    def _past(self, point: int) -> Floats:
        """Return [counter] what had been charged when the window before a point began."""
        whole = int(self.window_s)
        past = self._charged[point - whole]
        if part := self.window_s - whole:
            past = past - part * (past - self._charged[point - whole - 1])
        return np.asarray(past)

    def _turns(self, level: int, mine_s: Floats, narrower_s: Floats, one: Floats) -> Floats:
        """Return [flow] what goes of each while the line of its counter, which tells ``mine_s``, goes round once.

        ``narrower_s`` is the most that any narrower one tells, ``one`` the part of the flow in one request of that one.
        """
        late = np.flatnonzero((mine_s > 0) & (narrower_s > mine_s))
        if not len(late):
            return self._weight
        turns = self._weight.copy()
        one = one[late]
        others = np.maximum(self._others[level, late], one)
        turns[late] = one * others / (others + (narrower_s[late] / mine_s[late] - 1) * one)
        return turns

    @staticmethod
    def _shared(wanted: Floats, counter: Indices, room: Floats, turns: Floats) -> Floats:
        """Return what passes of what is ``wanted`` of the counters of one level, each of which has ``room``."""
        count = len(room)
        over = np.bincount(counter, wanted, count) > room
        over[-1] = False
        if not over.any():
            return wanted
        free = over[counter]
        left = room.copy()
        share = np.zeros(count)
        for _ in range(_TURNS):
            weight = np.bincount(counter[free], turns[free], count)
            share = np.divide(left, weight, out=np.zeros(count), where=weight > 0)
            content = free & (wanted <= share[counter] * turns)
            if not content.any():
                break
            left -= np.bincount(counter[content], wanted[content], count)
            free &= ~content
        return np.where(free, np.minimum(wanted, np.maximum(share[counter] * turns, 0)), wanted)

    def _asked_s(self, points: Floats, limit: Floats) -> Floats:  # noqa: ARG002  the counters' own hold
        gained = gain(self._charged[: len(points)], self.window_s)[self.history + 1 :]
        asked_s = excess(gained / self.window_s, self._limits, self.window_s)
        self._asked_of_counters = asked_s
        by_level = asked_s[:, self._levels]
        self._strictest = by_level.argmax(axis=1)
        return np.asarray(by_level.max(axis=1))

    def _throttled(self, start: int, held: Bools, asked_s: Floats, sent: Floats) -> Bools:
        """Return when each flow is: what others of its counter send asks nothing of one that sends nothing."""
        asked = asked_s > LEAST_THROTTLE_S
        sends = sent > 0
        throttled = held.copy()
        until_s = self.muted_until_s.copy()
        for second in range(len(asked)):
            told = asked[second] & sends[second]
            throttled[second] |= told | (asked[second] & (until_s > start + second))
            until_s = np.where(told, np.maximum(until_s, start + second + asked_s[second]), until_s)
        level = np.where(throttled, self._strictest, -1)
        self._held_s += np.array([(level == each).sum(axis=0) for each in range(len(self._levels))])
        return throttled

    def _note(self, throttled: Bools, at_most: Bools, active: Bools, waiting: Floats) -> None:
        """Add up for the counters what their flows have met."""
        own = self._is_quota | (self._asked_of_counters > LEAST_THROTTLE_S)
        there = own[:, self._there]
        throttled_c, most_c = (there & self._any(each) for each in (throttled, at_most))
        before = np.concatenate((self._held_c[None, self._there], throttled_c[:-1]))
        self._throttled_c[self._there] += throttled_c.sum(axis=0)
        self._most_c[self._there] += most_c.sum(axis=0)
        self._episodes_c[self._there] += (throttled_c & ~before).sum(axis=0)
        self._held_c[self._there] = throttled_c[-1]
        self._active[self._there] += self._any(active).sum(axis=0)
        waits = np.add.reduceat(waiting[1:, self._member], self._starts, axis=1).max(axis=0)
        self._waiting_c[self._there] = np.maximum(self._waiting_c[self._there], waits)

    def _any(self, of_flows: Bools) -> Bools:
        return np.asarray(np.logical_or.reduceat(of_flows[:, self._member], self._starts, axis=1))

    def _let_out(self, limit: Floats) -> None:  # noqa: ARG002  the counters' own hold
        """Let what waits at the end leave in step with the others that wait for the same counters."""
        waiting = np.maximum(self.arrived[-1, self.unit] - self.gone[0], 0)
        total = self._together(waiting)
        share = np.divide(waiting, total[self._levels], out=np.ones(self._levels.shape), where=total[self._levels] > 0)
        super()._let_out(np.maximum((self._limits[self._levels] * share).min(axis=0), 1e-9))

    def _outcome(self, course: StepSeries | None) -> Outcome:
        flows = super()._outcome(course)

        def summed(values: Floats) -> Floats:
            return self._together(values.ravel())[:-1].reshape(self._shape)

        def spread(histograms: Floats) -> Floats:
            found = np.zeros((len(self._limits), BINS))
            np.add.at(found, self._of_member, histograms.reshape(-1, BINS)[self._member])
            return found[:-1].reshape(*self._shape, BINS)

        def counted(values: Floats) -> Floats:
            return values[:-1].reshape(self._shape)

        levels = len(self._levels)
        return Outcome(
            seconds=self.seconds,
            demand_bytes=summed(flows.demand_bytes),
            sent_bytes=summed(flows.sent_bytes),
            expired_bytes=summed(flows.expired_bytes),
            waiting_bytes=summed(flows.waiting_bytes),
            peak_waiting_bytes=counted(self._waiting_c),
            active_s=counted(self._active),
            throttled_s=counted(self._throttled_c),
            throttled_most_s=counted(self._most_c),
            episodes=counted(self._episodes_c),
            throttles=spread(flows.throttles),
            delays=spread(flows.delays),
            carry=flows.carry,
            held_s=self._held_s.reshape(levels, self._shape[0], -1).transpose(1, 0, 2),
        )
