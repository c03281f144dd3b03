"""Two instances restarted in turn, again and again, while clients come and others stay: nobody sees an error."""

import json
import time
from contextlib import ExitStack
from typing import Final

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.newcomers import Newcomers
from tests.integration.conftest import fresh_name
from tests.integration.test_elected_owners import (  # noqa: F401  the fixtures
    NODE_IDS,
    Instances,
    group_cluster,
    instances,
)

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.integration, pytest.mark.timeout(1200)]

NAMES: Final = ("edge-1", "edge-2")
CLIENTS_PER_S: Final = 100
"""Each makes two connections."""
DRAIN: Final = {"delay": "1s", "timeout": "10s"}


@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.matrix)])
def test_rolling_restarts_cause_no_error(group_cluster: KafkaCluster, instances: Instances, restarts: int) -> None:  # noqa: F811
    instances.sections = {"drain": DRAIN}
    for name in NAMES:
        instances.start(name)
    instances.until_agreed(*NAMES)
    bootstrap = ",".join(each.bootstrap for each in instances.running.values())
    topics = {node_id: fresh_name("rolling") for node_id in NODE_IDS}
    for node_id, topic in topics.items():
        group_cluster.create_topic(topic, leader=node_id)
    with ExitStack() as stack:
        producers = {}
        for kind, node_id in ((AIOKAFKA, NODE_IDS[0]), (CONFLUENT, NODE_IDS[1])):
            task = Produce(
                bootstrap=bootstrap,
                client_id=kind.name,
                topic=topics[node_id],
                duration_s=1000.0,
                record_bytes=500,
                rate_bytes_per_s=50_000,
                acks=-1,
                idempotent=True,
            )
            producers[kind, topics[node_id]] = stack.enter_context(kind.run(task))
        newcomers = stack.enter_context(Newcomers(bootstrap, ",".join(topics.values()), CLIENTS_PER_S, 1000.0))
        for number in range(restarts):
            time.sleep(1.0)
            restarted = instances.running[NAMES[number % 2]]
            assert restarted.stop() == 0
            restarted.launch()
            restarted.wait_ready()
            instances.until_agreed(*NAMES)
        newcomers.finish()
        for producer in producers.values():
            producer.ask_to_stop()
        produced = {key: producer.result(timeout_s=90) for key, producer in producers.items()}
        happened = newcomers.happened
        print(f"{restarts} restarts: {happened}")
        assert happened.failed == []
        assert happened.clients > restarts * CLIENTS_PER_S
        for (kind, topic), sent in produced.items():
            assert (sent.errors, sent.records > 100 * restarts) == ((), True)
            reading = Consume(
                bootstrap=group_cluster.bootstrap,
                client_id="reader",
                topic=topic,
                records=sent.records,
                duration_s=60.0,
            )
            with CONFLUENT.run(reading) as consumer:
                found = consumer.result()
            assert (kind.name, found.records, found.corrupt) == (kind.name, sent.records, 0)
        logged = [line for each in instances.running.values() for line in each.logs()]
        errors = [line for line in logged if line["event"] == "internal error"]
        assert not errors, json.dumps(errors, indent=1)
        assert not any("instance removed" in line["event"] for line in logged)
