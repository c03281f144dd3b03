"""Laws that refuse, replayed: partitions that are created and deleted, and connections of an address.

They are few, so each is replayed by itself, by the proxy's own arithmetic. A recording has them by the interval: what
came within one is taken as spread evenly over it, in as many parts as there were requests, and at most MOST_PARTS.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor, inf
from typing import Final

import numpy as np

from analysis.kernel import histogram
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from quotas.rate import Rate, Window
from quotas.token_bucket import TokenBucket

MOST_PARTS: Final = 20
"""Of what came within one interval."""
_APART_MS: Final = 1000
"""Throttles with a smaller gap between them are one episode."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What rows of one unit say, in the order of time; arrays of one length, times in ms since second 0."""

    begin_ms: Indices
    interval_ms: Indices
    amount: Floats
    """What was asked for: partitions, or attempts to connect."""
    parts: Indices
    """In how many requests it came; of connections, each is one."""
    muted_ms: Floats
    """How long anything of it was held while recorded."""

    @property
    def held_at_the_end(self) -> bool:
        """Whether the recording of this unit ended while it was held."""
        return bool(len(self.muted_ms)) and bool(self.muted_ms[-1] > 0)

    def earliest(self) -> "Rows":
        """Return the same with what came while it was held, and right behind, at the begin of that: demand at most."""
        held = self.muted_ms > 0
        if not held.any():
            return self
        begin_ms = self.begin_ms.copy()
        until_ms, since_ms = -inf, 0
        for row in range(len(begin_ms)):
            begins, ends = int(self.begin_ms[row]), int(self.begin_ms[row] + self.interval_ms[row])
            goes_on = begins < until_ms
            if goes_on:
                begin_ms[row] = since_ms
            if held[row]:
                since_ms = since_ms if goes_on else begins
                until_ms = ends + _APART_MS
        order = np.argsort(begin_ms, kind="stable")
        return Rows(
            *(begin_ms[order], self.interval_ms[order], self.amount[order], self.parts[order], self.muted_ms[order])
        )

    def arrivals(self) -> Iterator[tuple[int, float]]:
        """Yield (when in ms, how much) of what came: whole numbers, each part in the middle of its time."""
        rows = zip(*(each.tolist() for each in (self.begin_ms, self.interval_ms, self.amount, self.parts)), strict=True)
        for begin_ms, interval_ms, amount, parts in rows:
            shown = min(max(parts, 1), MOST_PARTS)
            for part in range(shown if amount > 0 else 0):
                some = amount * (part + 1) // shown - amount * part // shown
                if some > 0:
                    yield begin_ms + interval_ms * (2 * part + 1) // (2 * shown), some


@dataclass(slots=True)
class Refusals:
    """What a replay found of one unit under one limit."""

    asked: float = 0.0
    passed: float = 0.0
    """Within the period: the rest waits at its end, or was refused."""
    waiting: float = 0.0
    peak_waiting: float = 0.0
    throttled_ms: int = 0
    episodes: int = 0
    throttles: Floats | None = None
    """A histogram [bin] of throttle times, weighed by what was asked for; None: none was given."""
    _until_ms: float = -inf

    def throttle(self, begin_ms: int, end_ms: int, weight: float) -> None:
        """Take note that ``weight`` is held from ``begin_ms`` to ``end_ms``; begins are in order."""
        if self.throttles is None:
            self.throttles = np.zeros(histogram.BINS)
        at, times_s = np.zeros(1, dtype=np.int64), np.array([(end_ms - begin_ms) / 1000])
        histogram.add(self.throttles[None], at, times_s, np.array([weight]))
        if begin_ms - self._until_ms > _APART_MS:
            self.episodes += 1
        self.throttled_ms += int(max(end_ms - max(begin_ms, self._until_ms), 0))
        self._until_ms = max(self._until_ms, end_ms)

    def throttle_s(self, share: float) -> float:
        """Return the throttle time that ``share`` of what was asked for is not above."""
        if self.throttles is None:
            return 0.0
        return float(histogram.quantile_s(self._weighed, share))

    def share_above(self, time_s: float) -> float:
        """Return the share of what was asked for that is, or may be, given a longer throttle time."""
        return 0.0 if self.throttles is None else float(histogram.share_above(self._weighed, time_s))

    @property
    def _weighed(self) -> Floats:
        assert self.throttles is not None  # noqa: S101  both callers have looked
        whole = self.throttles.copy()
        whole[0] += max(self.asked - whole.sum(), 0.0)
        return whole


Law = Callable[[Rows, float, Window, int], Refusals]
"""Of rows, a limit, its window and the end of the period in ms."""


def mutations(rows: Rows, limit: float, window: Window, end_ms: int) -> Refusals:
    """Replay a token bucket (KIP-599): who finds it overdrawn waits until it is level, and is then carried out whole.

    One after the other, as old clients are held and Java's come again with what was refused them.
    """
    bucket = TokenBucket(window, limit)
    found = Refusals()
    free_ms = 0
    line: deque[tuple[int, float]] = deque()
    waiting = 0.0
    for at_ms, amount in rows.arrivals():
        found.asked += amount
        turn_ms = max(at_ms, free_ms)
        start_ms = turn_ms + bucket.throttle_ms(turn_ms)
        bucket.record(amount, start_ms)
        free_ms = start_ms
        while line and line[0][0] <= at_ms:
            waiting -= line.popleft()[1]
        if start_ms > at_ms:
            found.throttle(at_ms, start_ms, amount)
            line.append((start_ms, amount))
            waiting += amount
            found.peak_waiting = max(found.peak_waiting, waiting)
        if start_ms < end_ms:
            found.passed += amount
        else:
            found.waiting += amount
    found.throttled_ms = min(found.throttled_ms, end_ms)
    return found


def connections(rows: Rows, limit: float, window: Window, end_ms: int) -> Refusals:
    """Replay the rate of an address (KIP-612): who comes too often is refused, held a sample at most, and not counted.

    Nobody comes again who did not while it was recorded.
    """
    rate = Rate(window, limit, cap_ms=window.size_ms)
    found = Refusals()
    for at_ms, amount in rows.arrivals():
        found.asked += amount
        # One after the other at this moment, in one step: as many pass as the limit allows.
        rate.record(0.0, at_ms)
        rate.purge(at_ms)
        observed, window_ms = rate.observe(at_ms)
        room = limit * (window_ms / 1000) - observed * (window_ms / 1000)
        passed = min(amount, max(floor(room + 1e-6), 0))
        rate.record(passed, at_ms)
        found.passed += passed
        if amount > passed:
            rate.record(1.0, at_ms)
            held_ms = rate.check(at_ms)
            rate.record(-1.0, at_ms)
            found.throttle(at_ms, at_ms + max(held_ms, 1), amount - passed)
    found.throttled_ms = min(found.throttled_ms, end_ms)
    return found
