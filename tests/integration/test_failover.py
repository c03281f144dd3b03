"""A leader moves and a broker is restarted while every client works: none loses a record, none goes round the proxy."""

from contextlib import ExitStack

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_1, JAVA_4, KAFKA_PYTHON, KINDS, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.kafka import KafkaCluster
from tests.integration.conftest import fresh_name

DURATION_S = 150.0  # an upper bound: the clients are asked to stop
PROGRESS_RECORDS = 20
FIRST_LEADER, NEXT_LEADER = 5, 42
SHORT = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_1, JAVA_4)


@pytest.fixture(scope="module")
def cluster(own_cluster: KafkaCluster) -> KafkaCluster:
    return own_cluster


class Pair:
    """A producer that repeats itself until acknowledged, and a consumer of its topic."""

    def __init__(self, guarded: Guarded, kind: ClientKind, stack: ExitStack) -> None:
        self.topic = fresh_name(f"failover-{kind.name}")
        guarded.cluster.create_topic(self.topic, leader=FIRST_LEADER, replicas=3)
        at = guarded.sluice.bootstrap
        produce = Produce(
            bootstrap=at,
            client_id=kind.name,
            topic=self.topic,
            duration_s=DURATION_S,
            rate_bytes_per_s=20_000,
            record_bytes=500,
            idempotent=True,
        )
        consume = Consume(bootstrap=at, client_id=kind.name, topic=self.topic, duration_s=DURATION_S)
        self.producer = stack.enter_context(kind.run(produce))
        self.consumer = stack.enter_context(kind.run(consume))

    def wait_for_progress(self, what: str) -> None:
        for client in (self.producer, self.consumer):
            reached = _records(client) + PROGRESS_RECORDS
            client.wait_for(lambda client, reached=reached: _records(client) >= reached, f"progress {what}")  # type: ignore[misc]

    def finish(self) -> None:
        """End the producer, let the consumer come after it, and compare."""
        self.producer.ask_to_stop()
        produced = self.producer.result()
        self.consumer.wait_for(lambda client: _records(client) >= produced.records, "everything consumed", 30.0)
        self.consumer.ask_to_stop()
        consumed = self.consumer.result()
        assert produced.errors == ()
        assert consumed.corrupt == 0
        assert consumed.seen == produced.seen
        assert consumed.records == produced.records


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(SHORT, marks=[pytest.mark.integration, pytest.mark.slow], id="one-of-each"),
        pytest.param(KINDS, marks=pytest.mark.matrix, id="all"),
    ],
)
def test_clients_lose_nothing_over_leader_move_and_broker_restart(
    cluster: KafkaCluster, kinds: tuple[ClientKind, ...]
) -> None:
    with guarded_sluice(cluster, settings={"cluster": {"refresh": "1s"}}) as guarded, ExitStack() as stack:
        pairs = [Pair(guarded, kind, stack) for kind in kinds]
        _wait_for_all(pairs, "at first")
        for pair in pairs:
            cluster.move_leader(pair.topic, 0, NEXT_LEADER)
        _wait_for_all(pairs, "after the leader moved")
        cluster.stop_broker(NEXT_LEADER)
        _wait_for_all(pairs, "while that broker is down")
        cluster.start_broker(NEXT_LEADER)
        _wait_for_all(pairs, "after its return")
        for pair in pairs:
            pair.finish()
        assert guarded.watch.escapes == []
        assert guarded.watch.admitted.total() > 2 * len(pairs)


def _wait_for_all(pairs: list[Pair], when: str) -> None:
    for pair in pairs:
        pair.wait_for_progress(when)


def _records(client: ClientProcess) -> int:
    progress = client.of_kind("progress")
    return int(progress[-1]["records"]) if progress else 0
