"""What a rate owes beyond its limit, and when that is made good (docs/decisions/0017)."""

from math import ceil, inf
from typing import Final

from quotas.rate import AT_ONCE, Rate, Window
from quotas.throttle import INT32_MAX

FOREVER_S: Final = INT32_MAX / 1000
_MOST_ASIDE: Final = 0.5
"""Of a window's worth: one request that is larger does not keep all others waiting."""


class Debt(Rate):
    """A rate that owes what went beyond its limit.

    It is in debt until Kafka's throttle time of what was charged is over, whichever connection that came on; and it
    forgets nothing of what went beyond its window's worth and its limit since, where Kafka forgets samples that are N
    windows old, whatever was sent in them. Where throttles are capped (``cap_ms``), the throttle time holds only the
    connection that met it, as at a broker.
    """

    __slots__ = ("_ahead_ms", "_aside", "_counted", "_level", "_level_ms", "_until_ms", "shut")

    def __init__(self, window: Window, limit: float | None, cap_ms: int | None) -> None:
        super().__init__(window, limit, cap_ms)
        self.shut = False
        """Requests have to ask ``may_go`` before they are charged. While it is False none need to."""
        self._until_ms = AT_ONCE
        """When the longest throttle time is over that a charge has asked for."""
        self._ahead_ms = AT_ONCE
        """When the limit has made good what went within a debt."""
        self._level = 0.0
        """What was recorded and not yet made good by the limit: a bucket that leaks T a second, at ``_level_ms``."""
        self._level_ms = AT_ONCE
        self._counted = 0.0
        self._aside = 0.0
        """What others may not use, because a request is to come that may go whatever is owed."""

    def owe(self, throttle_ms: int, now_ms: int) -> None:
        """Be in debt for the throttle time that a charge has asked for. To be called on the live bound."""
        if self._cap_ms is None:
            self._until_ms = max(self._until_ms, now_ms + throttle_ms)
        self.shut = True

    def may_bring_forward(self, now_ms: int, most_ms: int) -> bool:
        """Whether a request may go within a debt: no more than ``most_ms`` worth of what has gone so is still owed."""
        return bool(self._limit) and self._ahead_ms <= now_ms + most_ms

    def bring_forward(self, value: float, now_ms: int) -> None:
        """Owe what was charged within a debt, as a debt by itself. To be called with what came, not what was claimed.

        Kafka's throttle time forgets what is a window old: a client that went ahead again and again would get what it
        may owe on top of the quota, each window anew.
        """
        if self._limit:
            self._ahead_ms = max(self._ahead_ms, now_ms) + ceil(value / self._limit * 1000)
            self.shut = True

    def owed_ms(self, now_ms: int) -> int:
        """Return for how long the counter is still in debt, 0 if it is not."""
        if self._limit is None:
            return 0
        debt_ms = max(self._until_ms, self._ahead_ms) - now_ms
        self._drain(now_ms)
        # One window of N samples, where Kafka allows N - 1 and what has gone by of the next: never the stricter one.
        most = self._limit * (self._window.keep_ms / 1000)
        beyond = self._level + min(self._aside, most * _MOST_ASIDE) - most
        if beyond > 0:
            debt_ms = max(debt_ms, ceil(min(beyond / self._limit, FOREVER_S) * 1000) if self._limit else INT32_MAX)
        return max(debt_ms, 0)

    def left(self, now_ms: int) -> float:
        """Return how much may still be recorded; negative where more was than N samples' worth.

        Some of that may be a debt for a moment: while a window is young, the time that the rate is taken over goes up
        and down between N - 1 samples and N.
        """
        if self._limit is None:
            return inf
        rate, window_ms = self.observe(now_ms)
        self._drain(now_ms)
        keep_ms = self._window.keep_ms
        most = self._limit * (keep_ms / 1000)
        by_window = self._limit * (max(window_ms, keep_ms) / 1000) - rate * (window_ms / 1000)
        return min(by_window, most - self._level) - min(self._aside, most * _MOST_ASIDE)

    def when_left(self, value: float, now_ms: int) -> int:
        """Return ``now_ms`` if so much is left, else the moment before which it is not."""
        missing = value - self.left(now_ms)
        if missing <= 0 or not self._limit:
            return now_ms
        keep_ms = self._window.keep_ms
        ends_ms = [sample.last_ms + keep_ms for sample in self._samples if sample.sum > 0]
        moment_ms = now_ms + ceil(min(missing / self._limit, FOREVER_S) * 1000)
        return min([moment_ms, *[end_ms for end_ms in ends_ms if end_ms > now_ms]])

    def fits(self, value: float, now_ms: int) -> bool:
        """Whether ``value`` may be recorded now without a debt, as far as a few additions can tell: True is certain.

        To be called on the live bound.
        """
        if self.shut or self._limit is None or now_ms >= self._due_ms:
            return False
        sample = self._current
        level = self._level + self._left + sample.sum - self._counted  # what was made good since is left out
        return sample.sum + value <= self._headroom and level + value <= self._limit * (self._window.keep_ms / 1000)

    def rejudge(self, now_ms: int) -> None:
        """Take another limit for what is owed too: who waits goes on as soon as the new one allows it."""
        self._until_ms = self._ahead_ms = AT_ONCE
        if self._limit is not None and (throttle_ms := self.check(now_ms)):
            self.owe(throttle_ms, now_ms)

    def forgive(self, now_ms: int) -> None:
        """Owe what the window holds, and no more than a window's throttle: nobody was held for what went beyond it."""
        self._drain(now_ms)
        if self._limit is not None:
            most = self._limit * (self._window.keep_ms / 1000)
            self._level = min(self._level, most)
            self.shrink(most, now_ms)
        self.rejudge(now_ms)

    def _drain(self, now_ms: int) -> None:
        """Count what was recorded since the last time, and take off what the limit has made good."""
        if self._limit is None:
            self._level = 0.0
            self._level_ms = now_ms
        else:
            self._make_good(min(self._current.last_ms, now_ms))  # what is recorded was recorded before then
            self._level = max(self._level + self.recorded_total - self._counted, 0.0)
            self._make_good(now_ms)
        self._counted = self.recorded_total

    def _make_good(self, now_ms: int) -> None:
        if self._limit is not None and now_ms > self._level_ms:
            self._level = max(self._level - self._limit * (now_ms - self._level_ms) / 1000, 0.0)
            self._level_ms = now_ms

    def _roll(self, now_ms: int) -> None:
        self._drain(now_ms)
        super()._roll(now_ms)
