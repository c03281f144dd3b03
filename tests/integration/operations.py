"""What a client does through the proxy, and what must come of it: each operation asserts for itself."""

from collections.abc import Callable
from typing import TypedDict

from tests.harness.clients.kinds import KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess, Result
from tests.harness.clients.tasks import Administer, Consume, Produce
from tests.harness.guarded import Guarded
from tests.integration.conftest import fresh_name

RECORDS = 600
RECORD_BYTES = 500
SLOW_BYTES_PER_S = 75_000
SLOW_RECORDS = 1_200
Operation = Callable[[Guarded, ClientKind], None]


class Whom(TypedDict):
    """What every task of one client has in common."""

    bootstrap: str
    client_id: str
    topic: str


def slow(kind: ClientKind) -> str:
    """The client-id of that client under a quota."""
    return f"{kind.name}-slow"


def acks_none(guarded: Guarded, kind: ClientKind) -> None:
    _round_trip(guarded, kind, acks=0)


def acks_leader(guarded: Guarded, kind: ClientKind) -> None:
    _round_trip(guarded, kind, acks=1)


def acks_all(guarded: Guarded, kind: ClientKind) -> None:
    _round_trip(guarded, kind, acks=-1)


def idempotent(guarded: Guarded, kind: ClientKind) -> None:
    _round_trip(guarded, kind, idempotent=True)


def transactional(guarded: Guarded, kind: ClientKind) -> None:
    """Every third transaction is aborted: a consumer of committed records sees just the others."""
    topic = _topic(guarded)
    task = Produce(
        **_whom(guarded, kind, topic), records=RECORDS, record_bytes=RECORD_BYTES, transactional_id=fresh_name("txn")
    )
    with kind.run(task) as producer:
        produced = producer.result()
    assert not produced.errors
    assert 0 < produced.records < RECORDS
    with kind.run(Consume(**_whom(guarded, kind, topic), records=produced.records, committed_only=True)) as consumer:
        _assert_same(consumer.result(), produced)


def under_quota(guarded: Guarded, kind: ClientKind) -> None:
    """The same bytes, later: held to the quota, and told so."""
    topic = _topic(guarded)
    whom = _whom(guarded, kind, topic)
    whom["client_id"] = slow(kind)
    with kind.run(Produce(**whom, records=SLOW_RECORDS, record_bytes=RECORD_BYTES)) as producer:
        produced = producer.result()
    _assert_throttled(guarded, kind, "producer_byte_rate", produced)
    with kind.run(Consume(**whom, records=SLOW_RECORDS, partition_fetch_bytes=50_000)) as consumer:
        consumed = consumer.result()
    _assert_throttled(guarded, kind, "consumer_byte_rate", consumed)
    _assert_same(consumed, produced)


def administration(guarded: Guarded, kind: ClientKind) -> None:
    """A topic is created, and every broker that the client is told of is an address of the proxy."""
    topic = fresh_name("created")
    with kind.run(Administer(**_whom(guarded, kind, topic))) as admin:
        seen = admin.event("admin")
    assert topic in seen["topics"]
    assert seen["brokers"] == {str(node_id): str(at) for node_id, at in guarded.sluice.broker_addresses.items()}


def classic_rebalance(guarded: Guarded, kind: ClientKind) -> None:
    _rebalance(guarded, kind, "classic")


def consumer_protocol_rebalance(guarded: Guarded, kind: ClientKind) -> None:
    """KIP-848, where the client speaks it."""
    _rebalance(guarded, kind, "consumer")


def _round_trip(guarded: Guarded, kind: ClientKind, acks: int = 1, *, idempotent: bool = False) -> None:
    topic = _topic(guarded)
    whom = _whom(guarded, kind, topic)
    task = Produce(**whom, records=RECORDS, record_bytes=RECORD_BYTES, acks=acks, idempotent=idempotent)
    with kind.run(task) as producer:
        produced = producer.result()
    assert not produced.errors
    assert produced.seen == ((0, RECORDS - 1),)
    with kind.run(Consume(**whom, records=RECORDS)) as consumer:
        _assert_same(consumer.result(), produced)


def _rebalance(guarded: Guarded, kind: ClientKind, protocol: str) -> None:
    """One member holds both partitions, a second one joins and takes one, and nothing is lost."""
    topic = _topic(guarded, partitions=2)
    whom = _whom(guarded, kind, topic)
    member = Consume(**whom, group=fresh_name("group"), protocol="consumer" if protocol == "consumer" else "classic")
    with kind.run(member) as first:
        first.wait_for(lambda client: _held(client) == {0, 1}, "both partitions assigned to the first member")
        with kind.run(member) as second:
            second.wait_for(lambda client: len(_held(client)) == 1, "one partition assigned to the second member")
            first.wait_for(lambda client: len(_held(client)) == 1, "one partition left to the first member")
            for partition in (0, 1):
                _fill(whom, partition)
            for client in (first, second):
                client.wait_for(_has_received, f"{RECORDS} records received")
                client.ask_to_stop()
            results = [client.result() for client in (first, second)]
    assert sorted(result.seen for result in results) == [((0, RECORDS - 1),), ((RECORDS, 2 * RECORDS - 1),)]
    assert not any(result.corrupt or result.errors for result in results)


def _fill(whom: Whom, partition: int) -> None:
    task = Produce(
        **whom, partition=partition, records=RECORDS, record_bytes=RECORD_BYTES, first_index=partition * RECORDS
    )
    with KAFKA_PYTHON.run(task) as producer:
        assert producer.result().records == RECORDS


def _held(client: ClientProcess) -> set[int]:
    """The partitions of a member: what it was told to take, less what it was told to give back."""
    held: set[int] = set()
    for event in list(client.events):
        if event["event"] == "assigned":
            held |= set(event["partitions"])
        elif event["event"] == "revoked":
            held -= set(event["partitions"])
    return held


def _has_received(client: ClientProcess) -> bool:
    progress = client.of_kind("progress")
    return bool(progress) and progress[-1]["records"] >= 1


def _topic(guarded: Guarded, partitions: int = 1) -> str:
    topic = fresh_name("topic")
    guarded.cluster.create_topic(topic, partitions=partitions)
    return topic


def _whom(guarded: Guarded, kind: ClientKind, topic: str) -> Whom:
    return {"bootstrap": guarded.sluice.bootstrap, "client_id": kind.name, "topic": topic}


def _assert_same(consumed: Result, produced: Result) -> None:
    """A payload that differs in one byte has no index: see tasks.py."""
    assert consumed.corrupt == 0
    assert consumed.errors == ()
    assert consumed.seen == produced.seen


def _assert_throttled(guarded: Guarded, kind: ClientKind, quota_kind: str, result: Result) -> None:
    assert result.errors == ()
    metrics = guarded.sluice.metrics()
    assert metrics.value("sluice_quota_throttled_responses_total", kind=quota_kind, client_id=slow(kind)) > 0
    assert metrics.value("sluice_quota_throttle_seconds_total", kind=quota_kind, client_id=slow(kind)) > 0
    assert not kind.reports_throttle or (result.throttle_ms or 0) > 0
