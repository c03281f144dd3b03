"""Rejected requests and connections: each is counted, and logged at a limited rate."""

import structlog

from protocol.errors import Cause, ProtocolError
from proxy.edge.stats import Stats
from proxy.runtime.log_lines import OTHERS, OnceAMinute
from proxy.session.flow import BROKER

log = structlog.get_logger("sluice.rejected")

_Key = tuple[str, Cause, str]


class Rejections:
    """Counts every rejection; logs the first of each cause and host, then one line with the number of the rest.

    ``flush`` has to be called now and then: it writes those lines.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._lines = OnceAMinute(_say_more)

    def note(self, side: str, error: ProtocolError, peer: str, now_ms: int, *, about: str | None = None) -> None:
        """Count ``error``, and log it unless the same was logged just now. ``about`` replaces the host as the key."""
        self._stats.rejected[side, error.cause] += 1
        same = peer.rpartition(":")[0] if about is None else about
        if self._lines.admits((side, error.cause, same), (side, error.cause, OTHERS), now_ms):
            log.warning("connection closed", side=side, cause=error.cause.value, error=str(error), peer=peer)

    def note_refused(self, cause: Cause) -> None:
        """Count a broker's address at which another node answers, which is logged where it is found."""
        self._stats.rejected[BROKER, cause] += 1

    def flush(self, now_ms: int) -> None:
        """Log how many more there were, for intervals that are over."""
        self._lines.flush(now_ms)


def _say_more(key: _Key, number: int) -> None:
    side, cause, same = key
    log.warning("more connections closed", side=side, cause=cause.value, of=same, number=number)
