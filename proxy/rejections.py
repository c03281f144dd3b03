"""What was refused, counted each time and logged once in a while: a flood must not become one of log lines."""

from typing import Final

import structlog

from protocol.errors import Cause, ProtocolError
from proxy.stats import Stats

INTERVAL_MS: Final = 60_000
MAX_KEPT: Final = 1000
"""Hosts (or names) with a line of their own in one interval; the others share one for each cause."""

_OTHERS: Final = "others"

log = structlog.get_logger("sluice.rejected")

_Key = tuple[str, Cause, str]


class _Suppressed:
    __slots__ = ("count", "until_ms")

    def __init__(self, until_ms: int) -> None:
        self.count = 0
        self.until_ms = until_ms


class Rejections:
    """Counts every rejection; of the same cause and the same host one line is written, then one that counts the rest.

    Call ``flush`` every now and then: it writes those counts and forgets.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._suppressed: dict[_Key, _Suppressed] = {}

    def note(self, side: str, error: ProtocolError, peer: str, now_ms: int, *, about: str | None = None) -> None:
        """Count ``error``, and log it unless it is one of many. ``about``: what is the same in them, else the host."""
        self._stats.rejected[side, error.cause] += 1
        same = peer.rpartition(":")[0] if about is None else about
        key = (side, error.cause, same)
        if key not in self._suppressed and len(self._suppressed) >= MAX_KEPT:
            key = (side, error.cause, _OTHERS)
        suppressed = self._suppressed.get(key)
        if suppressed is not None and now_ms < suppressed.until_ms:
            suppressed.count += 1
            return
        if suppressed is not None:
            self._write_count(key, suppressed)
        self._suppressed[key] = _Suppressed(now_ms + INTERVAL_MS)
        log.warning("connection closed", side=side, cause=error.cause.value, error=str(error), peer=peer)

    def flush(self, now_ms: int) -> None:
        """Write how many more there were, where the interval is over."""
        for key in [key for key, suppressed in self._suppressed.items() if now_ms >= suppressed.until_ms]:
            self._write_count(key, self._suppressed.pop(key))

    @staticmethod
    def _write_count(key: _Key, suppressed: _Suppressed) -> None:
        if suppressed.count:
            side, cause, same = key
            log.warning("more connections closed", side=side, cause=cause.value, of=same, number=suppressed.count)
