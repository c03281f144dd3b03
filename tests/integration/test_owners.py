"""Two instances in front of three brokers, each with owners of its own: quotas are exact, whichever a client asks."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_3, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_WINDOW, SHORT_WINDOW_S, LogMeter
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = pytest.mark.integration

RECORDS = 600
LIMIT_BYTES_PER_S = 500_000
WINDOWS = 6
LONGEST_S = 3 * SHORT_WINDOW_S * (1 + WINDOWS)
TOLERANCE = 0.06
OWNED = {"edge-1": NODE_IDS[:2], "edge-2": NODE_IDS[2:]}
QUOTAS = f"quotas:\n- {{entity: {{client-id: greedy}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n"
MOST_TRIES = 30
# One over librdkafka and one in Java each time; the others repeat the rule.
CLIENTS = [
    *(pytest.param(kind, id=kind.name) for kind in (CONFLUENT, JAVA_3)),
    *(pytest.param(kind, id=kind.name, marks=pytest.mark.slow) for kind in (KAFKA_PYTHON, AIOKAFKA)),
]


class Instances(dict[str, SluiceProcess]):
    """Running instances by name; with ``owned`` these are the owners of the brokers."""

    def __init__(self, cluster: KafkaCluster, owned: dict[str, tuple[int, ...]] | None, stack: ExitStack) -> None:
        super().__init__()
        for name in OWNED:
            self[name] = SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=SHORT_WINDOW)
        fixed: dict[str, Any] = {}
        for name, ids in (owned or {}).items():
            ports = {str(node_id): str(at.port) for node_id, at in self[name].broker_addresses.items()}
            told = {"PLAIN": {"host": "127.0.0.1", "brokers": ports}}
            fixed[name] = {"brokers": ", ".join(map(str, ids)), "advertise": told}
        for name, instance in self.items():
            if fixed:
                instance.settings["owners"] = {"instance": name, "fixed": fixed}
            stack.enter_context(instance)


@pytest.fixture(scope="module")
def instances(cluster: KafkaCluster) -> Iterator[Instances]:
    with ExitStack() as stack:
        yield Instances(cluster, OWNED, stack)


def owner_of(instances: Instances, node_id: int) -> SluiceProcess:
    return next(instances[name] for name, ids in OWNED.items() if node_id in ids)


def other_than_owner_of(instances: Instances, node_id: int) -> SluiceProcess:
    return next(instances[name] for name, ids in OWNED.items() if node_id not in ids)


def test_every_instance_advertises_each_brokers_owner(instances: Instances) -> None:
    wanted = {node_id: str(owner_of(instances, node_id).broker_addresses[node_id]) for node_id in NODE_IDS}
    for instance in instances.values():
        brokers = AdminClient({"bootstrap.servers": instance.bootstrap}).list_topics(timeout=20).brokers
        assert {node_id: f"{each.host}:{each.port}" for node_id, each in brokers.items()} == wanted


@pytest.mark.parametrize("kind", CLIENTS)
def test_records_go_and_come_through_any_instance(
    cluster: KafkaCluster, instances: Instances, kind: ClientKind
) -> None:
    """Also the coordinator of the group may be the other instance's."""
    for position, (producing, consuming) in enumerate((("edge-1", "edge-2"), ("edge-2", "edge-1"))):
        topic = fresh_name("owned")
        cluster.create_topic(topic, leader=NODE_IDS[-position])
        task = Produce(bootstrap=instances[producing].bootstrap, client_id=kind.name, topic=topic, records=RECORDS)
        with kind.run(task) as producer:
            produced = producer.result()
        reading = Consume(
            bootstrap=instances[consuming].bootstrap, client_id=kind.name, topic=topic, records=RECORDS, group=topic
        )
        with kind.run(reading) as consumer:
            consumed = consumer.result()
        assert (produced.records, consumed.records, consumed.corrupt) == (RECORDS, RECORDS, 0)


def test_client_at_an_instance_that_is_not_owner_is_closed(instances: Instances) -> None:
    for node_id in NODE_IDS:
        instance = other_than_owner_of(instances, node_id)
        counted = partial(instance.metrics().value, "sluice_connections_total", outcome="not_owner")
        before = counted()
        for _ in range(20):  # one in four, by chance, is let in, and asks
            with Connection(instance.broker_addresses[node_id], timeout_s=1.0) as connection:
                if connection.is_closed_by_peer():
                    break
        assert instance.metrics().value("sluice_connections_total", outcome="not_owner") == before + 1


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_with_an_old_address_finds_the_owner(
    cluster: KafkaCluster, instances: Instances, kind: ClientKind
) -> None:
    node_id, topic = NODE_IDS[0], fresh_name("old-address")
    cluster.create_topic(topic, leader=node_id)
    other = other_than_owner_of(instances, node_id)
    before = other.metrics().value("sluice_connections_total", outcome="not_owner")
    bootstrap = f"{other.broker_addresses[node_id]},{other.bootstrap}"
    with kind.run(Produce(bootstrap=bootstrap, client_id=kind.name, topic=topic, records=RECORDS)) as producer:
        assert producer.result().records == RECORDS
    assert other.metrics().value("sluice_connections_total", outcome="not_owner") - before <= MOST_TRIES


@dataclass(frozen=True, slots=True)
class Greed:
    """A topic, and the instances through which one client produces to it."""

    topic: str
    instances: Instances


def test_client_of_two_instances_gets_its_quota_once(cluster: KafkaCluster, instances: Instances) -> None:
    """Beside it, two instances without owners: each grants the quota."""
    with ExitStack() as stack:
        greeds = {
            "owners": Greed(fresh_name("owners"), instances),
            "alone": Greed(fresh_name("alone"), Instances(cluster, None, stack)),
        }
        meters: dict[str, LogMeter] = {}
        clients = []
        for name, greed in greeds.items():
            cluster.create_topic(greed.topic, leader=NODE_IDS[1])
            meters[name] = stack.enter_context(LogMeter(cluster.log_folder(greed.topic)))
            for kind, instance in zip((CONFLUENT, AIOKAFKA), greed.instances.values(), strict=True):
                task = Produce(
                    bootstrap=instance.bootstrap,
                    client_id="greedy",
                    topic=greed.topic,
                    duration_s=LONGEST_S,
                    record_bytes=4_000,
                )
                clients.append(stack.enter_context(kind.run(task)))
        for meter in meters.values():
            clients[0].wait_for(partial(_is_measured, meter), "its rate was measured", LONGEST_S)
        for client in clients:
            client.ask_to_stop()
        rates = {name: meter.series.steady_rate(WINDOWS, SHORT_WINDOW_S) for name, meter in meters.items()}
        assert rates["owners"] == pytest.approx(LIMIT_BYTES_PER_S, rel=TOLERANCE)
        alone = rates["alone"] / LIMIT_BYTES_PER_S
        assert 1.3 < alone < 2 * (1 + TOLERANCE), "the clients can send more than one quota, and get two at most"


def _is_measured(meter: LogMeter, client: ClientProcess) -> bool:
    return meter.series.has_steady_rate(WINDOWS, SHORT_WINDOW_S)
