"""The set-up: a cluster of three brokers, Sluice in front of it, and unmodified clients."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from deploy.demo import records
from deploy.demo.readings import Meter
from deploy.demo.scenario import (
    BEFORE,
    CLICKS,
    GREEDY_CONSUMER,
    KIB,
    NODE_IDS,
    PARTICIPANTS,
    SAMPLE_S,
    TOPICS,
    WINDOW_SAMPLES,
    Participant,
    Plan,
)
from tests.harness.clients.kinds import CONFLUENT
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess

BATCH_BYTES: Final = 64 * KIB
"""Small requests compared with the quotas, so that throttles follow each other closely."""
FETCH_BYTES: Final = 16 * KIB
"""Less than a batch, so that a broker answers with one whole batch. A truncated second batch would be charged and
discarded: the consumer would seem slower than its quota allows.
"""
SPARE_S: Final = 30.0
"""The clients' extra running time, for starting and stopping."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running cluster and proxy."""

    cluster: KafkaCluster
    sluice: SluiceProcess


@contextmanager
def set_up(plan: Plan, say: Callable[[str], None]) -> Iterator[Stage]:
    """Start everything but the clients; all of it is stopped at the end of the block."""
    with ExitStack() as stack:
        say(f"starting a Kafka cluster of {len(NODE_IDS)} brokers …")
        cluster = stack.enter_context(KafkaCluster(node_ids=NODE_IDS))
        for topic in TOPICS:
            cluster.create_topic(topic.name, leader=topic.leader)
        say(f"filling topic {CLICKS.name}, for the greedy consumer to read …")
        _fill(cluster, plan)
        say("starting Sluice in front of it …")
        window = {"samples": WINDOW_SAMPLES, "size": f"{SAMPLE_S * 1000:.0f}ms"}
        settings = {"quotas": {"window": window}, "usage": records.SETTINGS}
        sluice = stack.enter_context(
            SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=BEFORE.text(), settings=settings)
        )
        yield Stage(cluster, sluice)


@contextmanager
def clients_at_work(stage: Stage, plan: Plan) -> Iterator[list[Meter]]:
    """Start the clients, each as a process; stopped at the end of the block."""
    with ExitStack() as stack:
        yield [
            Meter(participant, stack.enter_context(_start(participant, stage.sluice.bootstrap, plan)))
            for participant in PARTICIPANTS
        ]


def _start(participant: Participant, bootstrap: str, plan: Plan) -> ClientProcess:
    duration_s = plan.total_s + SPARE_S
    if participant.produces:
        return participant.library.run(
            Produce(
                bootstrap=bootstrap,
                client_id=participant.client_id,
                topic=participant.topic,
                duration_s=duration_s,
                record_bytes=participant.record_bytes,
                rate_bytes_per_s=participant.pace_bytes_per_s or 0,
                batch_bytes=BATCH_BYTES,
            )
        )
    return participant.library.run(
        Consume(
            bootstrap=bootstrap,
            client_id=participant.client_id,
            topic=participant.topic,
            duration_s=duration_s,
            partition_fetch_bytes=FETCH_BYTES,
        )
    )


def _fill(cluster: KafkaCluster, plan: Plan) -> None:
    """Produce more than the greedy consumer can read."""
    enough_bytes = int(BEFORE.bytes_per_s(GREEDY_CONSUMER) * (plan.total_s + SPARE_S))
    task = Produce(
        bootstrap=cluster.bootstrap,
        client_id="filler",
        topic=CLICKS.name,
        records=enough_bytes // GREEDY_CONSUMER.record_bytes,
        record_bytes=GREEDY_CONSUMER.record_bytes,
        batch_bytes=BATCH_BYTES,
    )
    with CONFLUENT.run(task) as filler:
        filler.result()
