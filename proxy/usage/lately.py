"""Samples of a client, every ten seconds: its bytes, and the time in which it was throttled."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from proxy.usage.kind_usage import Throttles

NOW_MS: Final = 2000
"""*Now* (docs/api.md) includes throttles that ended at most so long ago: a client at its limit has many short ones."""
LAST_MINUTE_MS: Final = 60_000
SAMPLE_MS: Final = 10_000
IN_A_MINUTE: Final = LAST_MINUTE_MS // SAMPLE_MS


@dataclass(slots=True, eq=False)
class Lately:
    """The samples of one meter."""

    _bytes_in: int = 0
    """Total at the last sample, as ``_bytes_out``."""
    _bytes_out: int = 0
    _in_per_s: float = 0.0
    """In the last sample, as ``_out_per_s``."""
    _out_per_s: float = 0.0
    _minute: tuple[int, int] = (0, 0)
    """Totals at the last ``take_minute``."""
    throttles: Throttles | None = None
    """Throttles of all kinds together since the last sample; None unless there were some in the last minute."""
    _muted_ms: deque[int] | None = None
    """The time throttled in each sample of the last minute, from the first throttle on."""

    def sample(self, bytes_in: int, bytes_out: int, elapsed_s: float, now_ms: int) -> None:
        """Take a sample; the bytes are totals."""
        self._in_per_s = (bytes_in - self._bytes_in) / elapsed_s
        self._out_per_s = (bytes_out - self._bytes_out) / elapsed_s
        self._bytes_in, self._bytes_out = bytes_in, bytes_out
        throttles = self.throttles
        if throttles is None:
            return
        if self._muted_ms is None:
            self._muted_ms = deque(maxlen=IN_A_MINUTE)
        self._muted_ms.append(min(throttles.take(now_ms)[2], SAMPLE_MS))
        if throttles.over(now_ms) and not any(self._muted_ms):
            self.throttles = self._muted_ms = None

    def rates(self, bytes_in: int, bytes_out: int, since_ms: int) -> tuple[float, float]:
        """Return bytes in and out per second over ten seconds; the last sample was ``since_ms`` ago."""
        per_s = 1000 / max(since_ms, SAMPLE_MS)
        rest = max(SAMPLE_MS - since_ms, 0) / SAMPLE_MS
        return (
            (bytes_in - self._bytes_in) * per_s + self._in_per_s * rest,
            (bytes_out - self._bytes_out) * per_s + self._out_per_s * rest,
        )

    def throttled_share(self, now_ms: int) -> float:
        """Return the share of the last minute in which it was throttled, as far as that has been counted."""
        if self.throttles is None:
            return 0.0
        return min((self.throttles.muted_ms(now_ms) + self._sampled_ms()) / LAST_MINUTE_MS, 1.0)

    def take_minute(self) -> tuple[int, int, int]:
        """Return the bytes in and out since the last call, and the time throttled in the last minute."""
        bytes_in, bytes_out = self._minute
        self._minute = self._bytes_in, self._bytes_out
        return self._bytes_in - bytes_in, self._bytes_out - bytes_out, self._sampled_ms()

    def _sampled_ms(self) -> int:
        return sum(self._muted_ms or ())
