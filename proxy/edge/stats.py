"""Plain counters that the data path raises: ints, on the loop. ``proxy.snapshot`` is what metrics are rendered from."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

from protocol.errors import Cause

LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(slots=True)
class ThrottleTotals:
    """Number of throttles and their total time."""

    number: int = 0
    ms: int = 0

    def note(self, throttle_ms: int) -> None:
        """Count one throttle."""
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
        """Count one measurement of the event loop's lag."""
        self.lag_counts[bisect_left(LAG_BUCKETS_S, lag_s)] += 1
        self.lag_sum_s += lag_s
