"""Snapshots and usages for tests, complete but for what a test wants to say itself."""

from dataclasses import replace

from proxy.admin.metrics import Renderer
from proxy.edge.stats import LAG_BUCKETS_S
from proxy.snapshot import Snapshot
from quotas.counted import CLUSTER
from quotas.engine import Counted, CounterState
from quotas.entities import Entity
from quotas.kinds import QuotaKind

EMPTY = Snapshot(
    mode="enforce",
    usage=[],
    gone=[],
    clients=[],
    delay_queue=dict.fromkeys(QuotaKind, 0),
    unseen_users=[],
    fetches_answered_empty=0,
    requests_dropped=0,
    requests=(0,) * 128,
    latencies={},
    proxy_latencies={},
    response_errors={},
    sessions={"PLAIN": 0},
    connections={("PLAIN", "accepted"): 0},
    accept_rates=[],
    accept_throttles={},
    ip_rates=[],
    ip_throttles={},
    authentications={},
    shared_logins={},
    gssapi_unread={},
    rejected={},
    certificate_expiry_s={},
    certificate_reloads={},
    reloads={"ok": 1},
    quota_changes={"made": 0},
    reload_error=None,
    quotas_configured=0,
    quotas_loaded_at_s=1_700_000_000.0,
    quotas_staleness_s=0.0,
    quotas_stand_in="",
    ready=True,
    admin_tokens={"accepted": 0, "wrong": 0, "slowed": 0},
    internal_errors={},
    brokers={1: True},
    brokers_without_port={"PLAIN": 0},
    brokers_ignored=0,
    gathered_bytes=0,
    connections_limit=10_000,
    exempt_request_us=0,
    lag_counts=(0,) * (len(LAG_BUCKETS_S) + 1),
    lag_sum_s=0.0,
    log_dropped={"unread": 0, "unwritten": 0, "repeated": 0},
    info={"version": "0.1.0"},
)

PRODUCE = CounterState(
    kind=QuotaKind.PRODUCER_BYTE_RATE,
    user="",
    client_id="greedy",
    broker=1,
    entity=Entity(client_id="greedy"),
    limit=1000.0,
    rate=500.0,
    charged_total=5000.0,
    throttled_total=2,
    throttle_ms_total=1500,
)


MUTATIONS = CounterState(
    kind=QuotaKind.CONTROLLER_MUTATION_RATE,
    user="",
    client_id="admin",
    broker=CLUSTER,
    entity=Entity(client_id="admin"),
    limit=3.0,
    rate=2.5,
    charged_total=50.0,
    throttled_total=1,
    throttle_ms_total=4000,
    tokens=-12.0,
    burst=33.0,
)


def shows(*usage: CounterState) -> Snapshot:
    """Return a snapshot of just these counters, whose totals have all been counted since the last one."""
    return replace(EMPTY, usage=[(one, counted(one)) for one in usage])


def counted(usage: CounterState) -> Counted:
    """Return the totals of a counter."""
    return Counted(
        usage.charged_total,
        usage.throttled_total,
        usage.throttle_ms_total,
        usage.shadow_throttled_total,
        usage.shadow_throttle_ms_total,
    )


def rendered(renderer: Renderer, snapshot: Snapshot) -> bytes:
    """The text of a snapshot, as for a scrape."""
    renderer.take(snapshot)
    return renderer.text(snapshot)
