"""The token bucket of controller_mutation_rate (KIP-599, org.apache.kafka.common.metrics.stats.TokenBucket)."""

from quotas.rate import AT_ONCE, Window
from quotas.throttle import divide, math_round


class TokenBucket:
    """A bucket of ``limit`` tokens a second, at most N windows' worth (not N - 1); may be overdrawn without bound."""

    __slots__ = ("_last_ms", "_limit", "_tokens", "_window_s")

    def __init__(self, window: Window, limit: float) -> None:
        self._window_s = window.keep_ms / 1000
        self._limit = limit
        # Empty since long ago: the first use finds it full. Kafka's is empty at the epoch, with the same effect.
        self._tokens = 0.0
        self._last_ms = AT_ONCE

    def set_limit(self, limit: float) -> None:
        """Use another limit, counting from the last refill; does not refill."""
        self._limit = limit

    def set_window(self, window: Window) -> None:
        """Use another window for the capacity; does not refill."""
        self._window_s = window.keep_ms / 1000

    def record(self, value: float, now_ms: int) -> None:
        """Take ``value`` tokens; a negative value returns tokens."""
        self._refill(now_ms)
        self._tokens = min(self.burst, self._tokens - value)

    def tokens(self, now_ms: int) -> float:
        """Return the tokens left; below zero the quota is violated."""
        self._refill(now_ms)
        return self._tokens

    def throttle_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the overdraft is paid off; 0 while there is none."""
        tokens = self.tokens(now_ms)
        return math_round(divide(-tokens, self._limit) * 1000) if tokens < 0 else 0

    @property
    def burst(self) -> float:
        """The most tokens that it holds."""
        return self._window_s * self._limit

    def _refill(self, now_ms: int) -> None:
        gained = self._limit * ((now_ms - self._last_ms) / 1000)
        self._tokens = min(self.burst, self._tokens + gained)
        self._last_ms = now_ms
