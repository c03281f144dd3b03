"""Samples of clients, every ten seconds: bytes a second, and the share of time in which each was throttled."""

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.usage.meter import Meter

NOW_MS: Final = 2000
"""*Now* (docs/api.md) includes throttles that ended at most so long ago: a client at its limit has many short ones."""
LAST_MINUTE_MS: Final = 60_000
SAMPLE_MS: Final = 10_000
MINUTES: Final = (1, 5, 15)
_SAMPLES: Final = 90
IN_A_MINUTE: Final = 6

Shares = tuple[float, float, float]
"""The shares of the last 1, 5 and 15 minutes in which a client was throttled."""
NO_SHARES: Final[Shares] = (0.0, 0.0, 0.0)


class Lately:
    """The samples of one meter."""

    __slots__ = ("_at", "_minute_in", "_minute_out", "_muted_ms", "bytes_in", "bytes_out", "in_per_s", "out_per_s")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = 0
        """Totals at the last sample."""
        self.in_per_s = self.out_per_s = 0.0
        """In the last sample."""
        self._muted_ms: array[int] | None = None
        """A ring, from the first throttle on."""
        self._at = 0
        self._minute_in = self._minute_out = 0
        """Totals at the last ``take_minute``."""

    def take_minute(self) -> tuple[int, int, int]:
        """Return the bytes in and out since the last call, and the time throttled in the last minute."""
        bytes_in, bytes_out = self.bytes_in - self._minute_in, self.bytes_out - self._minute_out
        self._minute_in, self._minute_out = self.bytes_in, self.bytes_out
        return bytes_in, bytes_out, self.muted_ms(1)

    def sample(self, bytes_in: int, bytes_out: int, elapsed_s: float) -> None:
        """Take a sample of totals."""
        self.in_per_s, self.out_per_s = (bytes_in - self.bytes_in) / elapsed_s, (bytes_out - self.bytes_out) / elapsed_s
        self.bytes_in, self.bytes_out = bytes_in, bytes_out

    def sample_muted(self, muted_ms: int) -> bool:
        """Take a sample of the time throttled; return whether any in the last minutes had some."""
        if self._muted_ms is None:
            if not muted_ms:
                return False
            self._muted_ms = array("H", bytes(2 * _SAMPLES))
        self._at = (self._at + 1) % _SAMPLES
        self._muted_ms[self._at] = min(muted_ms, SAMPLE_MS)
        if not any(self._muted_ms):
            self._muted_ms = None
        return self._muted_ms is not None

    def muted_ms(self, minutes: int) -> int:
        """Return the time throttled in the samples of the last minutes."""
        if self._muted_ms is None:
            return 0
        first = self._at - minutes * IN_A_MINUTE + 1  # negative: from the end of the ring
        return sum(self._muted_ms[at] for at in range(first, self._at + 1))


def sample(meters: Iterable["Meter"], elapsed_ms: int, now_ms: int) -> Iterator[None]:
    """Take a sample of each meter that has counted anything; yields after each."""
    for meter in meters:
        meter.sample(max(elapsed_ms, 1) / 1000, now_ms)
        yield
