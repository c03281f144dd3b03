"""The snapshots from which metrics are rendered: plain data that shares nothing mutable with the loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from protocol.errors import Cause
from proxy.edge.stats import LAG_BUCKETS_S, ThrottleTotals
from proxy.usage.latencies import Times
from proxy.usage.meter import ClientState
from proxy.usage.shipping import Shipping
from quotas.connections import AcceptRate, IpRate
from quotas.engine import Counted, CounterState, Gone
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.owners.membership import Status


class Sum(Enum):
    """How a metric of several workers is that of all together."""

    COUNTED = auto()
    """It adds up, and what a process had counted stays when that has ended."""
    NOW = auto()
    """It adds up: it is the state of now, or what was counted since the last snapshot."""
    EACH = auto()
    """As ``NOW``, element by element."""
    LEAST = auto()
    """The least current value, for each key."""
    IN_ALL = auto()
    """The current value, and true in all processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """A worker's metrics: plain copied data that shares nothing mutable with its loop; by default, of one that serves
    nobody. The metadata say how those of several workers are added up (``Sum``), if not as ``COUNTED``.
    """

    usage: list[tuple[CounterState, Counted]] = field(default_factory=list, metadata={"sum": Sum.NOW})
    """The state of each counter, and what it has counted since the last snapshot."""
    gone: list[Gone] = field(default_factory=list, metadata={"sum": Sum.NOW})
    """Counts since the last snapshot of counters that were removed."""
    clients: list[ClientState] = field(default_factory=list, metadata={"sum": Sum.NOW})
    """Traffic of clients since the last snapshot; a client may occur more than once."""
    delay_queue: dict[QuotaKind, int] = field(default_factory=dict, metadata={"sum": Sum.NOW})
    unseen_users: list[str] = field(default_factory=list, metadata={"sum": Sum.IN_ALL})
    """Users that have quotas and that no client has used yet."""
    fetches_answered_empty: int = 0
    requests_dropped: int = 0
    requests: tuple[int, ...] = (0,) * 128
    """Number of requests, by api key."""
    latencies: Mapping[tuple[int, int], Times] = field(default_factory=dict)
    """Latencies of brokers' answers, by (api key, node id)."""
    proxy_latencies: Mapping[tuple[int, int], Times] = field(default_factory=dict)
    """Time in the proxy of those requests and their answers, by (api key, node id)."""
    response_errors: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Answers with an error code, by (api key, error code)."""
    sessions: dict[str, int] = field(default_factory=dict, metadata={"sum": Sum.NOW})
    connections: dict[tuple[str, str], int] = field(default_factory=dict)
    accept_rates: list[AcceptRate] = field(default_factory=list, metadata={"sum": Sum.EACH})
    """Accept rates of the proxy and every listener; empty while quotas are off."""
    accept_throttles: dict[str, ThrottleTotals] = field(default_factory=dict)
    """By listener."""
    ip_rates: list[IpRate] = field(default_factory=list, metadata={"sum": Sum.NOW})
    ip_throttles: dict[str, ThrottleTotals] = field(default_factory=dict)
    """By listener."""
    authentications: dict[tuple[str, str, str], int] = field(default_factory=dict)
    shared_logins: dict[tuple[str, str, str], int] = field(default_factory=dict)
    gssapi_unread: dict[tuple[str, str], int] = field(default_factory=dict)
    """Kerberos tokens that could not be decrypted, by (listener with a keytab, cause)."""
    rejected: dict[tuple[str, Cause], int] = field(default_factory=dict)
    certificate_expiry_s: dict[str, float] = field(default_factory=dict, metadata={"sum": Sum.LEAST})
    certificate_reloads: dict[tuple[str, str], int] = field(default_factory=dict)
    brokers: dict[int, bool] = field(default_factory=dict, metadata={"sum": Sum.NOW})
    """Node id → whether the last connection attempt to it succeeded."""
    brokers_without_port: dict[str, int] = field(default_factory=dict, metadata={"sum": Sum.NOW})
    """By listener: known brokers that its clients cannot reach."""
    brokers_ignored: int = 0
    """Brokers in answers beyond the limit of a cluster."""
    gathered_bytes: int = field(default=0, metadata={"sum": Sum.NOW})
    """Bytes of incomplete client requests in memory."""
    connections_limit: int = field(default=0, metadata={"sum": Sum.NOW})
    memory_bytes: int = field(default=0, metadata={"sum": Sum.NOW})
    """Resident set, as of the last look; 0 without a ceiling."""
    memory_limit_bytes: int = field(default=0, metadata={"sum": Sum.NOW})
    """The ceiling; 0: none."""
    exempt_request_us: int = 0
    """Thread time of requests exempt from request_percentage."""
    lag_counts: tuple[int, ...] = (0,) * (len(LAG_BUCKETS_S) + 1)
    lag_sum_s: float = 0.0
    internal_errors: dict[str, int] = field(default_factory=dict)
    """Internal errors of the process, by the place in the program."""
    log_dropped: dict[str, int] = field(default_factory=dict)
    """Dropped log lines of the process, by cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(WorkerSnapshot):
    """Everything that one scrape shows: the worker's metrics and those of its process."""

    mode: str
    """The quota mode in force: enforce, shadow, off."""
    reloads: dict[str, int]
    """Loads of the quota store, by outcome: ok, failed."""
    reload_error: str | None
    """The first problem of the last load; None if it succeeded."""
    quotas_configured: int
    quotas_loaded_at_s: float
    """Wall time of the last successful load; 0.0 before the first."""
    quotas_staleness_s: float
    """How long the quotas in force may have differed from the store."""
    quotas_stand_in: str
    """The fallback in force because the store was never read: static, unlimited; else ""."""
    ready: bool
    mode_changes: int = 0
    """Mode changes since the start."""
    quota_changes: dict[str, int] = field(default_factory=dict)
    """Entities in requests to change quotas, by outcome (``proxy.control.change_log``)."""
    state_file: dict[str, int] | None = None
    """Loads and writes of ``cluster.state``, by outcome; None without it."""
    workers: "Sequence[ProcessState]" = ()
    """The processes of several workers."""
    owners: "Status | None" = None
    """Membership in the group of instances; None without one."""
    instances_unheard: int = 0
    """Other instances whose use of limits of the whole cluster is not known any more."""
    shipping: Shipping | None = None
    """Shipping of usage records; None without records."""
    admin_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens given to the admin port, by outcome."""
    info: dict[str, str] = field(default_factory=dict)
    """Labels of ``sluice_build_info``."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The process of one of several workers."""

    up: bool
    restarts: int
    """Times that it was started again."""
    cpu_s: float
    """CPU time, also of the processes before a restart."""
