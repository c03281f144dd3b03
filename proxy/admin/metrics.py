"""Renders a snapshot as Prometheus text.

Rendering many entities takes long, so it runs in a thread, off the event loop: a renderer touches only its own state
and its snapshot. ``docs/metrics.md`` describes each family.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate, chain, product
from typing import Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from protocol.error_codes import ERROR_NAMES
from protocol.errors import Cause
from protocol.overlay import FETCH, PRODUCE
from protocol.table import SPECS
from proxy.admin.client_series import ClientSeries, client_families
from proxy.admin.connection_series import connection_rates
from proxy.admin.entity_series import EntitySeries, entity_families
from proxy.admin.exposition import SUMMED, Row, broker_label, by_label, counter, gauge, number, total
from proxy.admin.series import SeriesLimits
from proxy.edge.stats import LAG_BUCKETS_S
from proxy.runtime.names import label
from proxy.snapshot import Snapshot
from proxy.usage.latencies import BOUNDS_MS, FOLDED_BROKER, Times
from quotas.kinds import PERCENT
from quotas.names import FOLDED

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_MAX_ERROR_BYTES: Final = 1024
_MOST_UNSEEN: Final = 100
_SIDES: Final = ("client", "broker")
_OUTCOMES: Final = ("ok", "failed")
_MODES: Final = ("enforce", "shadow", "off")

_API_NAMES: Final = {spec.api_key: spec.name for spec in SPECS.values()}


class Renderer:
    """Renders snapshots one after the other; to be called by one thread at a time."""

    def __init__(self, limits: SeriesLimits) -> None:
        self._limits = limits
        self._entities = EntitySeries(limits.counters)
        self._clients = ClientSeries(limits.clients)
        self._process = ProcessCollector(registry=None)

    def take(self, snapshot: Snapshot) -> None:
        """Add what was counted since the last snapshot."""
        self._entities.update(snapshot.usage, snapshot.gone)
        self._clients.update(snapshot.clients)

    def text(self, snapshot: Snapshot) -> bytes:
        """Return the last snapshot that was taken in the exposition format of ``CONTENT_TYPE``."""
        families = chain(
            entity_families(self._entities),
            _quotas(snapshot),
            client_families(self._clients),
            _traffic(snapshot, self._limits),
            connection_rates(snapshot, self._limits.addresses),
            _shipping(snapshot),
            _owners(snapshot),
            _workers(snapshot),
            _program(snapshot),
        )
        return generate_latest(_Families(chain(families, self._process.collect())))


class _Families(Collector):
    """An iterable of families in the interface that ``generate_latest`` requires."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _quotas(snapshot: Snapshot) -> Iterator[Metric]:
    modes = (((mode,), mode == snapshot.mode) for mode in _MODES)
    yield gauge("sluice_quota_mode", "1 for the quota mode in force, 0 for the others.", ("mode",), modes)
    yield total("sluice_quota_mode_changes", "Changes of the mode since the start.", snapshot.mode_changes)
    yield number("sluice_quotas_configured", "Quotas of the last good load.", snapshot.quotas_configured)
    yield number("sluice_quota_users_unseen", "Users with quotas that no client has used.", len(snapshot.unseen_users))
    unseen = (((label(user),), 1) for user in snapshot.unseen_users[:_MOST_UNSEEN])
    yield gauge("sluice_quota_user_unseen", "1 for each unseen user, at most a hundred.", ("user",), unseen)
    loaded_at_s = [((), snapshot.quotas_loaded_at_s)] if snapshot.quotas_loaded_at_s else []
    yield gauge("sluice_quota_loaded_timestamp_seconds", "Unix time of the last good load.", (), loaded_at_s)
    yield number(
        "sluice_quota_staleness_seconds",
        "How long the quotas in force may have differed from the store.",
        snapshot.quotas_staleness_s,
    )
    stand_in = [((snapshot.quotas_stand_in,), 1)] if snapshot.quotas_stand_in else []
    said = "1 for the fallback in force because the store was never read."
    yield gauge("sluice_quota_stand_in", said, ("mode",), stand_in)
    reloads = (((outcome,), snapshot.reloads.get(outcome, 0)) for outcome in _OUTCOMES)
    yield counter("sluice_quota_reloads", "Loads of the quota store.", ("outcome",), reloads)
    said = "Entities in requests to change quotas, by outcome."
    yield counter("sluice_quota_changes", said, ("outcome",), by_label(snapshot.quota_changes))
    yield _why("sluice_quota_reload_error_info", "Why the last load failed.", snapshot.reload_error)
    said = "Connections that are muted or wait now."
    yield gauge("sluice_delay_queue_size", said, ("kind",), by_label(snapshot.delay_queue))
    exempt = snapshot.exempt_request_us * PERCENT.per_used
    yield total("sluice_exempt_request_percent_seconds", "Thread time of exempt requests.", exempt)
    said = "Fetches answered with nothing after max_hold."
    yield total("sluice_fetches_answered_empty", said, snapshot.fetches_answered_empty)
    yield total("sluice_requests_dropped", "Waiting requests whose clients closed.", snapshot.requests_dropped)


def _traffic(snapshot: Snapshot, limits: SeriesLimits) -> Iterator[Metric]:
    yield gauge("sluice_sessions", "Client connections open now.", ("listener",), by_label(snapshot.sessions))
    connections = snapshot.connections.items()
    yield counter("sluice_connections", "Client connections, by outcome.", ("listener", "outcome"), connections)
    said = "Bytes of incomplete client requests in memory, beyond 16 KiB each."
    yield number("sluice_gathered_bytes", said, snapshot.gathered_bytes)
    yield number("sluice_connections_limit", "Client connections allowed at once.", snapshot.connections_limit)
    if snapshot.memory_limit_bytes:
        yield number("sluice_memory_bytes", "Resident memory of the workers.", snapshot.memory_bytes)
        yield number("sluice_memory_limit_bytes", "The ceiling of the workers' memory.", snapshot.memory_limit_bytes)
    yield counter("sluice_requests", "Requests of clients.", ("api",), _requests(snapshot.requests))
    errors = (
        ((_API_NAMES[api_key], ERROR_NAMES.get(code, "other")), number)
        for (api_key, code), number in sorted(snapshot.response_errors.items())
    )
    yield counter("sluice_response_errors", "Errors in the responses that are inspected.", ("api", "error"), errors)
    said = "Time that brokers took to answer forwarded requests."
    yield _latencies("sluice_request_broker_seconds", said, _fit(snapshot.latencies, limits.latencies))
    said = "Time that forwarded requests and their answers spent in the proxy."
    yield _latencies("sluice_request_proxy_seconds", said, _fit(snapshot.proxy_latencies, limits.latencies))
    labels = ("listener", "mechanism", "outcome")
    ended = snapshot.authentications.items()
    yield counter("sluice_authentications", "SASL authentications that ended.", labels, ended)
    said = "Authentications of clients that share one counter with all others of their mechanism."
    yield counter("sluice_shared_logins", said, ("listener", "mechanism", "cause"), snapshot.shared_logins.items())
    said = "GSSAPI first tokens that yielded no user."
    yield counter("sluice_gssapi_unread", said, ("listener", "cause"), snapshot.gssapi_unread.items())
    rejected = ((each, snapshot.rejected.get(each, 0)) for each in product(_SIDES, Cause))
    yield counter("sluice_frames_rejected", "Rejected frames, each with its connection.", ("side", "cause"), rejected)
    expiry_s = snapshot.certificate_expiry_s
    said = "Unix time at which the first certificate of a listener's chain expires."
    yield gauge("sluice_certificate_expiry_timestamp_seconds", said, ("listener",), by_label(expiry_s))
    loads = product(expiry_s, _OUTCOMES)
    reloads = ((each, snapshot.certificate_reloads.get(each, 0)) for each in loads)
    said = "Loads of a listener's TLS files after the first."
    yield counter("sluice_certificate_reloads", said, ("listener", "outcome"), reloads)
    # If they do not all fit, the unreachable brokers are shown first.
    shown = nsmallest(limits.brokers, snapshot.brokers.items(), key=lambda each: (each[1], each[0]))
    reachable = (((broker_label(node_id),), up) for node_id, up in sorted(shown))
    yield gauge("sluice_broker_reachable", "1 if the last connection to it could be made.", ("broker",), reachable)
    said = "Brokers without a port at a listener, whose clients cannot reach them."
    yield gauge("sluice_brokers_without_port", said, ("listener",), by_label(snapshot.brokers_without_port))
    said = "Times that a response named a broker beyond the limit of 2,000."
    yield total("sluice_brokers_ignored", said, snapshot.brokers_ignored)


def _shipping(snapshot: Snapshot) -> Iterator[Metric]:
    shipping = snapshot.shipping
    if shipping is None:
        return
    rows = ((("shipped",), shipping.shipped_rows), (("dropped",), shipping.dropped_rows))
    yield counter("sluice_usage_rows", "Rows of usage records.", ("outcome",), rows)
    documents = ((("shipped",), shipping.shipped_documents), (("dropped",), shipping.dropped_documents))
    yield counter("sluice_usage_documents", "Documents of usage records.", ("outcome",), documents)
    yield number("sluice_usage_buffer_bytes", "Usage records that wait to be shipped.", shipping.buffered_bytes)
    yield _why("sluice_usage_error_info", "Why usage records cannot be shipped.", shipping.error)


def _why(name: str, said: str, error: str | None) -> Metric:
    return gauge(name, said, ("error",), [] if error is None else [((label(error, _MAX_ERROR_BYTES),), 1)])


def _owners(snapshot: Snapshot) -> Iterator[Metric]:
    owners = snapshot.owners
    if owners is None:
        return
    owned = sum(owner == owners.instance for owner in owners.owners.values())
    yield number("sluice_owners_epoch", "Generation of the map of owners in force; -1 without one.", owners.epoch)
    yield number("sluice_owned_brokers", "Brokers that this instance owns.", 0 if owners.state == "fenced" else owned)
    said = "Since the coordinator of the group has last answered."
    yield number("sluice_owners_heartbeat_age_seconds", said, owners.heartbeat_age_s)
    moves = [(("gained",), owners.gained), (("lost",), owners.lost)]
    said = "Other instances whose use of limits of the whole cluster (scope: cluster) is not known any more."
    yield number("sluice_owners_unheard_instances", said, snapshot.instances_unheard)
    yield counter("sluice_owners_moves", "Brokers that have come to this instance, or gone.", ("direction",), moves)


def _workers(snapshot: Snapshot) -> Iterator[Metric]:
    if not snapshot.workers:
        return
    workers = [((str(number),), each) for number, each in enumerate(snapshot.workers)]
    up = ((labels, each.up) for labels, each in workers)
    yield gauge("sluice_worker_up", "1 if the process of a worker serves clients.", ("worker",), up)
    restarts = ((labels, each.restarts) for labels, each in workers)
    yield counter("sluice_worker_restarts", "Restarts of a worker's process after its end.", ("worker",), restarts)
    cpu = ((labels, each.cpu_s) for labels, each in workers)
    yield counter("sluice_worker_cpu_seconds", "CPU time of a worker.", ("worker",), cpu)


def _program(snapshot: Snapshot) -> Iterator[Metric]:
    yield number("sluice_ready", "1 if clients can be served, as in /readyz.", snapshot.ready)
    said = "Tokens given to the admin port, by outcome."
    yield counter("sluice_admin_tokens", said, ("outcome",), by_label(snapshot.admin_tokens))
    errors = (((label(where),), number) for where, number in snapshot.internal_errors.items())
    yield counter("sluice_internal_errors", "Internal errors, contained.", ("where",), errors)
    bounds = (*map(str, LAG_BUCKETS_S), "+Inf")
    lag = HistogramMetricFamily("sluice_event_loop_lag_seconds", "Lateness of event loop callbacks.")
    lag.add_metric((), list(zip(bounds, accumulate(snapshot.lag_counts), strict=True)), snapshot.lag_sum_s)
    yield lag
    said = "Lines of the log that were not written."
    yield counter("sluice_log_dropped", said, ("cause",), by_label(snapshot.log_dropped))
    if snapshot.state_file is not None:
        said, outcomes = "Loads and writes of cluster.state.", by_label(snapshot.state_file)
        yield counter("sluice_state_file_operations", said, ("outcome",), outcomes)
    info = snapshot.info
    yield gauge("sluice_build_info", "1, labelled with what is running.", tuple(info), [(tuple(info.values()), 1)])


def _fit(latencies: Mapping[tuple[int, int], Times], most: int) -> Mapping[tuple[int, int], Times]:
    """Sum times over brokers, if they are more than ``most``: first those of APIs other than Produce and Fetch."""
    for kept in (_API_NAMES.keys(), (PRODUCE, FETCH), ()):
        summed: dict[tuple[int, int], Times] = {}
        for (api_key, node_id), times in latencies.items():
            key = (api_key, node_id if api_key in kept else SUMMED)
            summed[key] = times.plus(summed[key]) if key in summed else times
        if len(summed) <= most:
            break
    return summed


def _latencies(name: str, said: str, latencies: Mapping[tuple[int, int], Times]) -> Metric:
    family = HistogramMetricFamily(name, said, labels=("api", "broker"))
    bounds = (*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf")
    for (api_key, node_id), times in sorted(latencies.items()):
        broker = FOLDED if node_id == FOLDED_BROKER else broker_label(node_id)
        buckets = list(zip(bounds, accumulate(times.counts), strict=True))
        family.add_metric((_API_NAMES[api_key], broker), buckets, times.sum_ms / 1000)
    return family


def _requests(by_api_key: Sequence[int]) -> Iterator[Row]:
    """Return the counts of all APIs that clients may use: a counter has to be seen at zero to grow."""
    advertised = {spec.api_key for spec in SPECS.values() if spec.advertised}
    return (((_API_NAMES[api_key],), by_api_key[api_key]) for api_key in sorted(advertised))
