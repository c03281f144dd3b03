"""The token bucket of controller_mutation_rate (KIP-599, org.apache.kafka.common.metrics.stats.TokenBucket)."""

from quotas.rate import Window
from quotas.throttle import math_round


class TokenBucket:
    """``limit`` tokens a second, at most N windows' worth (not N - 1); may be overdrawn without bound.

    Starts full: Kafka's starts empty at the epoch, which on a wall clock is the same; ours is monotonic.
    """

    __slots__ = ("_last_ms", "_limit", "_tokens", "_window_s")

    def __init__(self, window: Window, limit: float, now_ms: int) -> None:
        self._window_s = window.keep_ms / 1000
        self._limit = limit
        self._tokens = self.burst
        self._last_ms = now_ms

    @property
    def burst(self) -> float:
        """What a full bucket holds."""
        return self._window_s * self._limit

    def set_limit(self, limit: float) -> None:
        """Refill and hold according to another limit from the last refill on; the tokens stay as they are."""
        self._limit = limit

    def record(self, value: float, now_ms: int) -> None:
        """Take ``value`` tokens, or give them back if it is negative."""
        self._refill(now_ms)
        self._tokens = min(self.burst, self._tokens - value)

    def tokens(self, now_ms: int) -> float:
        """Return what is left; below zero the quota is violated."""
        self._refill(now_ms)
        return self._tokens

    def throttle_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the overdraft is made good; 0 while there is none."""
        tokens = self.tokens(now_ms)
        return math_round(-tokens / self._limit * 1000) if tokens < 0 else 0

    def _refill(self, now_ms: int) -> None:
        self._tokens = min(self.burst, self._tokens + self._limit * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
