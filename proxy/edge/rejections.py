"""What was refused, counted each time and logged once in a while: a flood must not become one of log lines."""

import structlog

from protocol.errors import Cause, ProtocolError
from proxy.edge.stats import Stats
from proxy.runtime.once_a_minute import OTHERS, OnceAMinute

log = structlog.get_logger("sluice.rejected")

_Key = tuple[str, Cause, str]


class Rejections:
    """Counts every rejection; of the same cause and the same host one line is written, then one that counts the rest.

    Call ``flush`` every now and then: it writes those counts and forgets.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._lines = OnceAMinute(_say_more)

    def note(self, side: str, error: ProtocolError, peer: str, now_ms: int, *, about: str | None = None) -> None:
        """Count ``error``, and log it unless it is one of many. ``about``: what is the same in them, else the host."""
        self._stats.rejected[side, error.cause] += 1
        same = peer.rpartition(":")[0] if about is None else about
        if self._lines.admits((side, error.cause, same), (side, error.cause, OTHERS), now_ms):
            log.warning("connection closed", side=side, cause=error.cause.value, error=str(error), peer=peer)

    def flush(self, now_ms: int) -> None:
        """Write how many more there were, where the interval is over."""
        self._lines.flush(now_ms)


def _say_more(key: _Key, number: int) -> None:
    side, cause, same = key
    log.warning("more connections closed", side=side, cause=cause.value, of=same, number=number)
