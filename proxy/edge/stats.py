"""Plain counters that the data path raises, and the snapshot of them that metrics are rendered from.

Counting is adding to an int on the loop; rendering happens elsewhere, from a ``Snapshot`` that shares nothing
mutable with the loop.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.errors import Cause
from proxy.usage.latencies import Times
from proxy.usage.meter import ClientState
from proxy.usage.shipping import Shipping
from quotas.connections import AcceptRate, IpRate
from quotas.engine import Counted, CounterState, Gone
from quotas.kinds import QuotaKind

LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(slots=True)
class Throttles:
    """How many there were, and how long they were together."""

    number: int = 0
    ms: int = 0

    def note(self, throttle_ms: int) -> None:
        """Count one."""
        self.number += 1
        self.ms += throttle_ms


class Stats:
    """Everything a worker counts, by the labels it is exported with."""

    __slots__ = (
        "accept_throttles",
        "authentications",
        "certificate_expiry_s",
        "certificate_reloads",
        "connections",
        "ip_throttles",
        "lag_counts",
        "lag_sum_s",
        "rejected",
        "sessions",
        "shared_logins",
    )

    def __init__(self) -> None:
        self.sessions: Counter[str] = Counter()
        """Open now, by listener; those whose TLS handshake is under way are among them."""
        self.connections: Counter[tuple[str, str]] = Counter()
        """By (listener, outcome): accepted, refused_limit, refused_listener_limit, not_accepted; of the accepted also
        left_early, broker_unreachable."""
        self.accept_throttles: dict[str, Throttles] = {}
        """By listener: waits of its acceptor, for its rate or that of the proxy."""
        self.ip_throttles: dict[str, Throttles] = {}
        """By listener: connections of addresses that came too often."""
        self.authentications: Counter[tuple[str, str, str]] = Counter()
        """Seen to end, by (listener, mechanism that the broker accepted, outcome: succeeded or failed)."""
        self.shared_logins: Counter[tuple[str, str, str]] = Counter()
        """That share a counter with all of their mechanism, by (listener, mechanism, why: no_credential, no_room)."""
        self.rejected: Counter[tuple[str, Cause]] = Counter()
        """Frames, and what came before the first one, by (side: client or broker, cause)."""
        self.certificate_expiry_s: dict[str, float] = {}
        """Unix time by listener: when the first certificate of its chain expires."""
        self.certificate_reloads: Counter[tuple[str, str]] = Counter()
        """Loads of a listener's TLS files after the first one, by (listener, outcome: ok, failed)."""
        self.lag_counts = [0] * (len(LAG_BUCKETS_S) + 1)
        self.lag_sum_s = 0.0

    def observe_lag(self, lag_s: float) -> None:
        """Count one measurement of how late the event loop called back."""
        self.lag_counts[bisect_left(LAG_BUCKETS_S, lag_s)] += 1
        self.lag_sum_s += lag_s


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """What a worker shows: plain data, copied, that shares nothing mutable with its loop."""

    usage: list[tuple[CounterState, Counted]]
    """What counters stand at, and what they have counted since the last snapshot."""
    gone: list[Gone]
    """What counters have counted since then that are there no more."""
    clients: list[ClientState]
    """What went through since the last snapshot, of some clients more than once."""
    delay_queue: dict[QuotaKind, int]
    unseen_users: list[str]
    """Whom quotas are for, and whom no client has been yet."""
    fetches_answered_empty: int
    requests_dropped: int
    requests: list[int]
    """By api key."""
    latencies: Mapping[tuple[int, int], Times]
    """Of brokers' answers, by api key and node id."""
    proxy_latencies: Mapping[tuple[int, int], Times]
    """For how long the proxy held these requests and answers, likewise."""
    response_errors: Mapping[tuple[int, int], int]
    """How often each API, by its key, was answered with an error code."""
    sessions: dict[str, int]
    connections: dict[tuple[str, str], int]
    accept_rates: list[AcceptRate]
    """Of the proxy and of every listener; nothing while quotas are off."""
    accept_throttles: dict[str, Throttles]
    """By listener."""
    ip_rates: list[IpRate]
    ip_throttles: dict[str, Throttles]
    """By listener."""
    authentications: dict[tuple[str, str, str], int]
    shared_logins: dict[tuple[str, str, str], int]
    gssapi_unread: dict[tuple[str, str], int]
    """By listener, of those with a keytab, and cause."""
    rejected: dict[tuple[str, Cause], int]
    certificate_expiry_s: dict[str, float]
    certificate_reloads: dict[tuple[str, str], int]
    brokers: dict[int, bool]
    """Node id → whether the last connection attempt to it succeeded."""
    brokers_without_port: dict[str, int]
    """By listener: known brokers that its clients cannot reach."""
    brokers_ignored: int
    """How often answers named a broker beyond those that a cluster may have."""
    gathered_bytes: int
    """Kept of clients' requests that are not whole yet."""
    connections_limit: int
    exempt_request_us: int
    """Of threads, for requests that no request_percentage holds."""
    lag_counts: list[int]
    lag_sum_s: float


@dataclass(frozen=True, slots=True)
class Snapshot(WorkerSnapshot):
    """What one scrape shows: a worker's part, and that of the process around it."""

    mode: str
    """Of quotas, in force now: enforce, shadow, off."""
    reloads: dict[str, int]
    """Loads of the store of quotas, by outcome: ok, failed."""
    reload_error: str | None
    """The first problem of the last load, if it failed; None when it did not."""
    quotas_configured: int
    quotas_loaded_at_s: float
    """Wall time of the last good load; 0.0 before the first."""
    quotas_staleness_s: float
    """For how long what is in force may not be what the store holds."""
    quotas_stand_in: str
    """What is in force because the store was never read: static, unlimited; "" where it was."""
    ready: bool
    internal_errors: dict[str, int]
    """Faults of our own, by the place in the program."""
    log_dropped: dict[str, int]
    """Lines, by cause."""
    mode_changes: int = 0
    """How often the mode was changed since the start."""
    quota_changes: dict[str, int] = field(default_factory=dict)
    """Entities whose quotas somebody meant to change, by outcome (``proxy.control.change_log``)."""
    state_file: dict[str, int] | None = None
    """Loads and writes of ``cluster.state``, by outcome; None without it."""
    shipping: Shipping | None = None
    """Of usage records; None where none are taken."""
    info: dict[str, str] = field(default_factory=dict)
    """Labels of ``sluice_build_info``."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of the sessions that were open."""

    sessions: int
    cut_off: int
    """Of them, those that were not done when the time was over."""
