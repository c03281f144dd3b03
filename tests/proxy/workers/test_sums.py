"""Metrics of several workers add up, over restarts too."""

from dataclasses import fields, replace

from protocol.errors import Cause
from proxy.edge.stats import ThrottleTotals
from proxy.snapshot import WorkerSnapshot
from proxy.usage.latencies import Times
from proxy.workers.sums import Sums
from quotas.connections import AcceptRate, IpRate
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.proxy.snapshots import EMPTY, PRODUCE, counted

NOTHING = replace(
    EMPTY,
    delay_queue={},
    sessions={},
    connections={},
    brokers={},
    brokers_without_port={},
    connections_limit=0,
    log_dropped={},
)
ONE = replace(
    NOTHING,
    usage=[(PRODUCE, counted(PRODUCE))],
    delay_queue={QuotaKind.PRODUCER_BYTE_RATE: 2},
    unseen_users=["seen by two", "unseen"],
    fetches_answered_empty=1,
    requests=(1,) * len(NOTHING.requests),
    latencies={(0, 1): Times((1, 2), 30)},
    sessions={"PLAIN": 3},
    connections={("PLAIN", "accepted"): 5},
    accept_rates=[AcceptRate("", 1.0, 50.0), AcceptRate("PLAIN", 0.5, None)],
    accept_throttles={"PLAIN": ThrottleTotals(1, 100)},
    ip_rates=[IpRate("10.0.0.1", 1, Entity(ip="10.0.0.1"), 5.0, 1.0)],
    rejected={("client", Cause.BAD_BODY): 1},
    certificate_expiry_s={"TLS": 2000.0},
    brokers={1: True, 2: True},
    gathered_bytes=10,
    connections_limit=100,
    lag_counts=(1,) * len(NOTHING.lag_counts),
    lag_sum_s=0.5,
    internal_errors={"here": 1},
    log_dropped={"unread": 1},
)
TWO = replace(
    ONE,
    unseen_users=["unseen", "seen by one"],
    latencies={(0, 1): Times((0, 1), 12), (1, 2): Times((3, 0), 1)},
    sessions={"PLAIN": 4},
    connections={("PLAIN", "accepted"): 6, ("TLS", "accepted"): 1},
    accept_throttles={"PLAIN": ThrottleTotals(2, 50), "TLS": ThrottleTotals(1, 1)},
    certificate_expiry_s={"TLS": 1000.0},
    brokers={1: True, 2: False},
)
NOW = {
    "usage": [(PRODUCE, counted(PRODUCE))] * 2,
    "delay_queue": {QuotaKind.PRODUCER_BYTE_RATE: 4},
    "unseen_users": ["unseen"],
    "sessions": {"PLAIN": 7},
    "accept_rates": [AcceptRate("", 2.0, 100.0), AcceptRate("PLAIN", 1.0, None)],
    "ip_rates": ONE.ip_rates * 2,
    "certificate_expiry_s": {"TLS": 1000.0},
    "brokers": {1: True, 2: False},
    "gathered_bytes": 20,
    "connections_limit": 200,
}
COUNTED = {
    "fetches_answered_empty": 2,
    "requests": (2,) * len(NOTHING.requests),
    "latencies": {(0, 1): Times((1, 3), 42), (1, 2): Times((3, 0), 1)},
    "connections": {("PLAIN", "accepted"): 11, ("TLS", "accepted"): 1},
    "accept_throttles": {"PLAIN": ThrottleTotals(3, 150), "TLS": ThrottleTotals(1, 1)},
    "rejected": {("client", Cause.BAD_BODY): 2},
    "lag_counts": (2,) * len(NOTHING.lag_counts),
    "lag_sum_s": 1.0,
    "internal_errors": {"here": 2},
    "log_dropped": {"unread": 2},
}


def said(snapshot: WorkerSnapshot) -> dict[str, object]:
    """Return the fields of a snapshot that say anything."""
    return {
        each.name: value
        for each in fields(WorkerSnapshot)
        if (value := getattr(snapshot, each.name)) != getattr(NOTHING, each.name)
    }


def test_fields_of_a_snapshot_say_nothing_by_default() -> None:
    assert said(WorkerSnapshot()) == {}


def test_counts_and_sizes_add_up() -> None:
    assert said(Sums().add({0: ONE, 1: TWO}, NOTHING)) == NOW | COUNTED
    assert said(Sums().add({}, NOTHING)) == {}


def test_ended_worker_keeps_its_counters_and_loses_its_gauges() -> None:
    sums = Sums()
    sums.add({0: ONE, 1: TWO}, NOTHING)
    alone = said(Sums().add({1: TWO}, NOTHING))
    for _ in range(2):  # also while it has not been noticed that it has ended
        assert said(sums.add({1: TWO}, NOTHING)) == {name: alone[name] for name in NOW} | COUNTED
        sums.ended(0)
    begun_anew = replace(NOTHING, fetches_answered_empty=1, sessions={"PLAIN": 1})
    total = sums.add({0: begun_anew, 1: TWO}, NOTHING)
    assert total.fetches_answered_empty == 3
    assert total.sessions == {"PLAIN": 5}
    assert total.connections == COUNTED["connections"]
    sums.ended(0)
    assert sums.add({1: TWO}, NOTHING).fetches_answered_empty == 3


def test_errors_of_the_supervisor_count_too() -> None:
    supervisor = replace(NOTHING, internal_errors={"there": 1})
    assert Sums().add({0: ONE}, supervisor).internal_errors == {"here": 1, "there": 1}
    assert Sums().add({}, supervisor).internal_errors == {"there": 1}
