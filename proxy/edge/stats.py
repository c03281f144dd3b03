"""Plain counters that the data path raises: ints, on the loop. ``proxy.snapshot`` is what metrics are rendered from.

Connections are refused by an exception. Rejected requests and connections are counted, and logged at a limited rate.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from protocol.errors import Cause, ProtocolError
from proxy.runtime.log_lines import OTHERS, OnceAMinute
from proxy.session.flow import BROKER

log = structlog.get_logger("sluice.rejected")

Close = Callable[[], None]

LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(slots=True)
class ThrottleTotals:
    """Number of throttles and their total time."""

    number: int = 0
    ms: int = 0

    def add(self, throttle_ms: int) -> None:
        self.number += 1
        self.ms += throttle_ms


class Stats:
    """Everything that a worker counts, by the labels of its metric. Each field is one of ``WorkerSnapshot``."""

    def __init__(self) -> None:
        self.sessions: Counter[str] = Counter()
        """Open now, by listener; including those in their TLS handshake."""
        self.connections: Counter[tuple[str, str]] = Counter()
        """By (listener, outcome): accepted, refused_limit, refused_listener_limit, not_accepted; of the accepted ones
        also left_early, broker_unreachable."""
        self.accept_throttles: dict[str, ThrottleTotals] = {}
        """By listener: waits of its acceptor, for its own rate or the proxy's."""
        self.ip_throttles: dict[str, ThrottleTotals] = {}
        """By listener: connections refused for the rate of their address."""
        self.authentications: Counter[tuple[str, str, str]] = Counter()
        """Finished logins by (listener, mechanism that the broker accepted, outcome: succeeded or failed)."""
        self.shared_logins: Counter[tuple[str, str, str]] = Counter()
        """Logins that share one counter per mechanism, by (listener, mechanism, reason: no_credential, no_room)."""
        self.rejected: Counter[tuple[str, Cause]] = Counter()
        """Rejected frames, and connections before their first frame, by (side: client or broker, cause)."""
        self.certificate_expiry_s: dict[str, float] = {}
        """Unix time by listener: the first expiry in its certificate chain."""
        self.certificate_reloads: Counter[tuple[str, str]] = Counter()
        """Reloads of a listener's TLS files, by (listener, outcome: ok, failed)."""
        self.lag_counts = [0] * (len(LAG_BUCKETS_S) + 1)
        self.lag_sum_s = 0.0

    def observe_lag(self, lag_s: float) -> None:
        self.lag_counts[bisect_left(LAG_BUCKETS_S, lag_s)] += 1
        self.lag_sum_s += lag_s


class Refused(Exception):  # noqa: N818  no error of ours
    """A connection goes no further.

    It is counted for the cause of ``error``, or under the label ``outcome``; ``by_limit``: also in usage records of its
    listener. ``hold`` takes the function that closes it, and calls that in a moment; without it, it is closed at once.
    """

    def __init__(
        self,
        error: ProtocolError | None = None,
        outcome: str | None = None,
        *,
        by_limit: bool = False,
        hold: Callable[[Close], None] | None = None,
    ) -> None:
        super().__init__(error or outcome)
        self.error = error
        self.outcome = outcome
        self.by_limit = by_limit
        self.hold = hold


class LeftEarly(Refused):
    """The client closed the connection before its first request was complete, as health checks do all day."""

    def __init__(self) -> None:
        super().__init__(outcome="left_early")


class Rejections:
    """Counts every rejection; logs the first of each cause and host, then one line with the number of the rest.

    ``flush`` has to be called now and then: it writes those lines.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._lines = OnceAMinute(_say_more)

    def count(
        self, side: str, error: ProtocolError, peer: str, now_ms: int, *, about: str | None = None, client_id: str = ""
    ) -> None:
        """Count ``error``, and log it unless the same was logged just now. ``about`` replaces the host as the key."""
        self._stats.rejected[side, error.cause] += 1
        same = peer.rpartition(":")[0] if about is None else about
        if self._lines.admits((side, error.cause, same), (side, error.cause, OTHERS), now_ms):
            who = {"client_id": client_id} if client_id else {}
            log.warning("connection closed", side=side, cause=error.cause.value, error=str(error), peer=peer, **who)

    def count_refused(self, cause: Cause) -> None:
        """Count a broker's address at which another node answers, which is logged where it is found."""
        self._stats.rejected[BROKER, cause] += 1

    def flush(self, now_ms: int) -> None:
        """Log how many more there were, for intervals that are over."""
        self._lines.flush(now_ms)


def _say_more(key: tuple[str, Cause, str], number: int) -> None:
    side, cause, same = key
    log.warning("more connections closed", side=side, cause=cause.value, of=same, number=number)
