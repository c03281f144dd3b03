"""The debt of a rate: usage beyond its limit, and when it is paid off (docs/decisions/0017)."""

from math import ceil, inf
from typing import Final

from quotas.rate import AT_ONCE, Rate, Window
from quotas.throttle import INT32_MAX

FOREVER_S: Final = INT32_MAX / 1000
_MOST_RESERVED: Final = 0.5
"""The largest part of a window's worth that a promised request may reserve, so that a large one does not block all
others.
"""


class Debt(Rate):
    """A rate with a debt for usage beyond its limit.

    It is in debt until the throttle time of every charge is over, whichever connection it was sent on. Kafka forgets
    samples that are N windows old; this keeps all usage beyond the window's worth until the limit has paid it off. If
    throttles are capped (``cap_ms``), the throttle time holds only the connection that was throttled, as at a broker.
    """

    __slots__ = ("_ahead_ms", "_counted", "_level", "_level_ms", "_reserved", "_until_ms", "shut")

    def __init__(self, window: Window, limit: float | None, cap_ms: int | None) -> None:
        super().__init__(window, limit, cap_ms)
        self.shut = False
        """Requests must call ``may_go`` before they are charged. While False, they need not."""
        self._until_ms = AT_ONCE
        """When the longest throttle time of any charge ends."""
        self._ahead_ms = AT_ONCE
        """When the limit has paid off the requests that were let through during a debt."""
        self._level = 0.0
        """Usage not yet paid off by the limit, at ``_level_ms``: a bucket that leaks T per second."""
        self._level_ms = AT_ONCE
        self._counted = 0.0
        self._reserved = 0.0
        """Usage reserved for a promised request, which may pass despite a debt."""

    @property
    def until_ms(self) -> int:
        """When the last throttle time of a charge ends, or has ended."""
        return max(self._until_ms, self._ahead_ms)

    def owe(self, throttle_ms: int, now_ms: int) -> None:
        """Add the throttle time of a charge to the debt."""
        if self._cap_ms is None:
            self._until_ms = max(self._until_ms, now_ms + throttle_ms)
        self.shut = True

    def reserve(self, value: float) -> None:
        """Reserve usage for a promised request, in place of what was reserved before."""
        self._reserved = value
        self.shut = True

    def may_bring_forward(self, now_ms: int, most_ms: int) -> bool:
        """Whether a request may pass despite a debt: earlier ones that did owe at most ``most_ms`` worth."""
        return bool(self._limit) and self._ahead_ms <= now_ms + most_ms

    def bring_forward(self, value: float, now_ms: int) -> None:
        """Add a request that passed to the debt, by its actual size, if there is one.

        Kafka's throttle time forgets usage that is a window old. Without this, a client that passes again and again
        would get that extra on top of the quota in every window.
        """
        if self._limit and self.shut and self.owed_ms(now_ms):
            self._ahead_ms = max(self._ahead_ms, now_ms) + ceil(value / self._limit * 1000)

    def owed_ms(self, now_ms: int) -> int:
        """Return how long the counter stays in debt, in ms; 0 if it is not."""
        if self._limit is None:
            return 0
        debt_ms = max(self._until_ms, self._ahead_ms) - now_ms
        self._drain(now_ms)
        # The window has N samples, Kafka's between N - 1 and N: this never is the stricter one.
        beyond = self._level + self._promised - self._limit * (self._window.keep_ms / 1000)
        if beyond > 0:
            debt_ms = max(debt_ms, ceil(min(beyond / self._limit, FOREVER_S) * 1000) if self._limit else INT32_MAX)
        return max(debt_ms, 0)

    def left(self, now_ms: int) -> float:
        """Return how much may still be recorded; negative if more than N samples' worth was.

        A negative result may be short-lived: while a window is young, the time that the rate is taken over varies
        between N - 1 and N samples.
        """
        if self._limit is None:
            return inf
        rate, window_ms = self.observe(now_ms)
        self._drain(now_ms)
        keep_ms = self._window.keep_ms
        by_window = self._limit * (max(window_ms, keep_ms) / 1000) - rate * (window_ms / 1000)
        return min(by_window, self._limit * (keep_ms / 1000) - self._level) - self._promised

    def when_left(self, value: float, now_ms: int) -> int:
        """Return ``now_ms`` if ``value`` is left, else the earliest moment at which it may be."""
        missing = value - self.left(now_ms)
        if missing <= 0 or not self._limit:
            return now_ms
        keep_ms = self._window.keep_ms
        ends_ms = [sample.last_ms + keep_ms for sample in self._samples if sample.sum > 0]
        moment_ms = now_ms + ceil(min(missing / self._limit, FOREVER_S) * 1000)
        return min([moment_ms, *[end_ms for end_ms in ends_ms if end_ms > now_ms]])

    def fits(self, value: float, now_ms: int) -> bool:
        """Fast check whether ``value`` may be recorded without a debt: True is certain, False is not."""
        if self.shut or self._limit is None or now_ms >= self._due_ms:
            return False
        sample = self._current
        level = self._level + self._left + sample.sum - self._counted  # ignores what was paid off since
        return sample.sum + value <= self._headroom and level + value <= self._limit * (self._window.keep_ms / 1000)

    def rejudge(self, now_ms: int) -> None:
        """Recompute the debt after the limit changed, so that waiting requests continue as soon as the new limit
        allows.
        """
        self._until_ms = self._ahead_ms = AT_ONCE
        if self._limit is not None and self._samples and (throttle_ms := self.check(now_ms)):
            self.owe(throttle_ms, now_ms)

    def forgive(self, now_ms: int) -> None:
        """Reduce the debt to the usage in the window and at most one window's throttle: usage beyond that was not
        throttled.
        """
        self._drain(now_ms)
        if self._limit is not None:
            most = self._limit * (self._window.keep_ms / 1000)
            self._level = min(self._level, most)
            rate, window_ms = self.observe(now_ms)
            if (used := rate * window_ms / 1000) > (counts := most + self._limit * window_ms / 1000):
                self.scale(counts / used)
        self.rejudge(now_ms)

    def change_share(self, before: float, now_ms: int) -> None:
        """Let usage go with the limit, a share that was ``before``: what others may use now, they take over.

        So a share that shrinks brings no long wait, and one that grows no burst.
        """
        if before and self._limit and (rate := self.observe(now_ms)[0]):
            self.scale(_moved(rate, before, self._limit) / rate)
            keep_s = self._window.keep_ms / 1000
            self._drain(now_ms)
            self._level = _moved(self._level, before * keep_s, self._limit * keep_s)
        self.rejudge(now_ms)

    def _drain(self, now_ms: int) -> None:
        """Add usage recorded since the last call, and subtract what the limit has paid off."""
        if self._limit is None:
            self._level = 0.0
            self._level_ms = now_ms
        else:
            self._make_good(min(self._current.last_ms, now_ms))  # all usage was recorded before then
            self._level = max(self._level + self.recorded_total - self._counted, 0.0)
            self._make_good(now_ms)
        self._counted = self.recorded_total

    def _make_good(self, now_ms: int) -> None:
        if self._limit is not None and now_ms > self._level_ms:
            paid = self._limit * (now_ms - self._level_ms) / 1000
            least = self._limit * (self._window.keep_ms / 1000 - self.saves_s) - self._promised
            self._level = max(self._level - paid, min(self._level, least), 0.0)
            self._level_ms = now_ms

    @property
    def saves_s(self) -> float:
        """The seconds' worth of the limit at most that remain for later while they are not used."""
        return FOREVER_S

    @property
    def _promised(self) -> float:
        """The usage that is set aside for a promised request."""
        return min(self._reserved, (self._limit or 0.0) * (self._window.keep_ms / 1000) * _MOST_RESERVED)

    def _roll(self, now_ms: int) -> None:
        self._drain(now_ms)
        super()._roll(now_ms)


def _moved(used: float, before: float, after: float) -> float:
    """Return the usage under a share of ``after`` instead of ``before``: usage within the limit moves with it."""
    return sorted((used, after, used * (after / before)))[1]
