"""Consumers with fetch.max.wait.ms=0 that have read everything, each library unchanged, under a request_percentage.

They ask without a pause. Each is held near its quota, gets what is written all the while, leaves no group and reports
nothing; and who is not over a quota notices nothing of it.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_1, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import WINDOW_S
from tests.harness.polling import wait_until
from tests.harness.reconnections import Reconnections
from tests.harness.sluice import Metrics, SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.request_loads import Storm, metadata

pytestmark = [pytest.mark.slow, pytest.mark.alone]

KIND: Final = "request_percentage"
LIMIT: Final = 5.0
"""Percent of one thread: some hundreds of empty fetches a second, of the thousands that are asked for."""
LEAST, MOST = 0.5, 1.15
"""Of the quota, over whole windows behind the first. A library that waits for longer than it is told gets less."""
RECORD_BYTES: Final = 100
RATE_BYTES_PER_S: Final = 1_000
"""What is written meanwhile: ten records a second."""
READY_S: Final = 60.0
SHORT: Final = (CONFLUENT,)
ALL: Final = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_1, JAVA_4)


@dataclass(frozen=True, slots=True)
class Polled:
    """What became of one consumer."""

    kind: ClientKind
    percent: float
    """Used of the quota, x the quota."""
    throttled: float
    """The share of the time, by the metric; of several connections that wait at once, the sum."""
    events: Sequence[str]
    """Of its group, and losses of its connection."""


@pytest.mark.matrix
@pytest.mark.timeout(240)
def test_a_consumer_that_polls_without_a_pause_is_held(cluster: KafkaCluster) -> None:
    _assert_held(cluster, SHORT, windows=1)


@pytest.mark.matrix
@pytest.mark.timeout(400)
def test_consumers_of_all_libraries_that_poll_without_a_pause_are_held(cluster: KafkaCluster) -> None:
    _assert_held(cluster, ALL, windows=4)


def _assert_held(cluster: KafkaCluster, kinds: Sequence[ClientKind], windows: int) -> None:
    topics = {kind: fresh_name("polled") for kind in kinds}
    for topic in topics.values():
        cluster.create_topic(topic, leader=NODE_IDS[0])
    seconds = (1 + windows) * WINDOW_S
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(kinds)) as sluice, ExitStack() as stack:
        consumers = {kind: stack.enter_context(kind.run(_consume(sluice, kind, topics[kind]))) for kind in kinds}
        for client in consumers.values():
            client.wait_for(lambda each: bool(each.of_kind("assigned")), "its partition assigned", READY_S)
        written = {
            kind: stack.enter_context(CONFLUENT.run(_produce(cluster, topics[kind], seconds + WINDOW_S)))
            for kind in kinds
        }
        lost = stack.enter_context(Reconnections({kind.name: client.pid for kind, client in consumers.items()}))
        quiet = Storm(sluice.broker_addresses[NODE_IDS[0]], metadata("quiet"), pause_s=0.5)
        threads = quiet.start(seconds)
        time.sleep(WINDOW_S)
        before, before_s = sluice.metrics(), time.monotonic()
        time.sleep(windows * WINDOW_S)
        after, span_s = sluice.metrics(), time.monotonic() - before_s
        for thread in threads:
            thread.join(READY_S)
        records = {kind: client.result().records for kind, client in written.items()}
        for kind, client in consumers.items():
            wait_until(lambda: _came(client) >= records[kind], f"all that was written, by {kind.name}", READY_S)  # noqa: B023  at once
        polled = [_polled(kind, consumers[kind], before, after, span_s, lost) for kind in kinds]
        for each in polled:
            what = f"{each.percent:.2f} x quota / {LEAST}-{MOST}, throttled for {each.throttled:.0%} of the time"
            print(f"polling {each.kind.name}: {what}; {records[each.kind]} records; {list(each.events)} / none")
        for client in consumers.values():
            client.ask_to_stop()
        results = {kind: client.result() for kind, client in consumers.items()}
    for each in polled:
        assert LEAST <= each.percent <= MOST
        assert each.throttled > 0
        assert each.events == []
        result = results[each.kind]
        assert (result.records, result.corrupt, result.errors) == (records[each.kind], 0, ())
    assert quiet.errors == []
    assert [throttle_ms for _, throttle_ms in quiet.told if throttle_ms] == []


def _polled(
    kind: ClientKind, client: ClientProcess, before: Metrics, after: Metrics, span_s: float, lost: Reconnections
) -> Polled:
    def grown(name: str) -> float:
        labels = {"kind": KIND, "client_id": kind.name}
        return (after.value(name, **labels) - before.value(name, **labels)) / span_s

    events = [event["event"] for event in client.events if event["event"] in {"assigned", "revoked"}]
    again = [f"connected to {port} again" for port in lost.seen().get(kind.name, [])]
    used = grown("sluice_quota_percent_seconds_total")
    throttled = grown("sluice_quota_throttle_seconds_total")
    return Polled(kind, used / LIMIT, throttled, [*_behind_the_first_assignment(events), *again])


def _behind_the_first_assignment(events: Sequence[str]) -> list[str]:
    """What a group of one goes through once it has its partition: nothing."""
    return list(events[events.index("assigned") + 1 :])


def _came(client: ClientProcess) -> int:
    progress = client.of_kind("progress")
    return int(progress[-1]["records"]) if progress else 0


def _consume(sluice: SluiceProcess, kind: ClientKind, topic: str) -> Consume:
    return Consume(
        bootstrap=sluice.bootstrap,
        client_id=kind.name,
        topic=topic,
        group=fresh_name("polling"),
        duration_s=600.0,
        fetch_wait_ms=0,
    )


def _produce(cluster: KafkaCluster, topic: str, duration_s: float) -> Produce:
    return Produce(
        bootstrap=cluster.bootstrap,
        client_id="writer",
        topic=topic,
        duration_s=duration_s,
        record_bytes=RECORD_BYTES,
        rate_bytes_per_s=RATE_BYTES_PER_S,
    )


def _quotas(kinds: Sequence[ClientKind]) -> str:
    lines = [f"  - {{entity: {{client-id: {kind.name}}}, {KIND}: {LIMIT}}}\n" for kind in kinds]
    return "quotas:\n" + "".join(lines) + f"  - {{entity: {{client-id: quiet}}, {KIND}: 50}}\n"
