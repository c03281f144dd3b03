"""Counted once by two instances with owners: mutations of a client, and connections of an address at each broker."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from config.cluster import Route
from config.units import parse_reachable
from proxy.brokers.cluster import Cluster
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, frame
from tests.integration.conftest import NODE_IDS, SHORT_WINDOW_SAMPLES
from tests.integration.old_kafka import OldKafka
from tests.integration.test_mutations import (
    CLIENT_IDS,
    LIMIT,
    QUOTA,
    Storm,
    most,
    run_java,
)

pytestmark = [pytest.mark.slow, pytest.mark.integration]

OWNED = {"edge-1": NODE_IDS[1:], "edge-2": NODE_IDS[:1]}
"""The broker with the lowest node id, the controller that all are told, is the second's."""
ONE_BROKER, ALL_BROKERS = "127.0.6.1", "127.0.6.2"
PER_S = 10
QUOTAS = "quotas:\n" + "".join(
    [f'- {{entity: {{ip: "{ip}"}}, connection_creation_rate: {PER_S}}}\n' for ip in (ONE_BROKER, ALL_BROKERS)]
    + [f"- {{entity: {{client-id: {name}}}, {QUOTA}: {LIMIT}}}\n" for name in CLIENT_IDS.values()]
    + [f"- {{entity: {{client-id: java}}, {QUOTA}: 1000}}\n"]
)
WINDOW = {"samples": SHORT_WINDOW_SAMPLES, "size": "1s"}
DURATION_S = 12.0
REQUEST = frame(API_VERSIONS, 0, 1, "rated", b"")
BURSTS = 0.15
"""By where the last burst of connections begins."""


@pytest.fixture(scope="module")
def instances(cluster: KafkaCluster) -> Iterator[dict[str, SluiceProcess]]:
    settings = {"quotas": {"controller_window": WINDOW, "window": WINDOW}}
    found = {name: SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=dict(settings)) for name in OWNED}
    fixed: dict[str, Any] = {}
    for name, instance in found.items():
        ports = {str(node_id): str(at.port) for node_id, at in instance.broker_addresses.items()}
        told = {"PLAIN": {"host": "127.0.0.1", "brokers": ports}}
        fixed[name] = {"brokers": ", ".join(map(str, OWNED[name])), "advertise": told}
    with ExitStack() as stack:
        for name, instance in found.items():
            instance.settings["owners"] = {"instance": name, "fixed": fixed}
            stack.enter_context(instance)
        yield found


def mutations(instances: dict[str, SluiceProcess], client_id: str) -> list[float]:
    name = "sluice_quota_mutations_total"
    return [sum(each.value for each in one.metrics().samples(name, client_id=client_id)) for one in instances.values()]


def test_all_instances_tell_one_controller(instances: dict[str, SluiceProcess]) -> None:
    for instance in instances.values():
        for _ in range(5):  # brokers name another one each time
            metadata = AdminClient({"bootstrap.servers": instance.bootstrap}).list_topics(timeout=20)
            assert metadata.controller_id == min(NODE_IDS)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("client", CLIENT_IDS, ids=CLIENT_IDS.values())
def test_a_client_of_two_instances_has_its_mutations_once(instances: dict[str, SluiceProcess], client: Any) -> None:
    begin_s = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        found: list[Storm] = list(threads.map(lambda each: client(each.bootstrap, 8.0), instances.values()))
    seconds = time.monotonic() - begin_s
    accepted = 2 * sum(storm.accepted for storm in found)
    assert mutations(instances, CLIENT_IDS[client]) == [0, accepted]
    assert LIMIT * SHORT_WINDOW_SAMPLES < accepted <= most(seconds) + 2


@pytest.mark.timeout(200)
def test_java_asks_the_controller_that_it_is_told(instances: dict[str, SluiceProcess]) -> None:
    for instance in instances.values():
        assert run_java("4.4.0", instance.bootstrap, "java", topics=10, partitions=3).split()[-1] == "deleted"
    assert mutations(instances, "java") == [0, 160]


async def served(targets: list[Address], source: str) -> int:
    """Connect to all in turn, three times as often as each has quota, and return how many were answered."""
    answered = 0

    async def one(at: Address) -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection(at.host, at.port, local_addr=(source, 0))
        writer.write(REQUEST)
        with suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(4), 30)
            answered += bool(answer)
        writer.close()

    begin_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(DURATION_S * 3 * PER_S)):
            await asyncio.sleep(max(0.0, begin_s + number / (3 * PER_S) - time.monotonic()))
            for at in targets:
                group.create_task(one(at))
    return answered


@pytest.mark.timeout(120)
def test_an_address_has_its_rate_at_each_broker_whichever_way_it_comes(
    instances: dict[str, SluiceProcess],
) -> None:
    """By the ports of all brokers and both bootstrap ports it gets three times what it gets by one broker's port."""
    owners = {node_id: instances[name].broker_addresses[node_id] for name, ids in OWNED.items() for node_id in ids}
    bootstraps = [
        Address(host, int(port)) for host, _, port in (each.bootstrap.partition(":") for each in instances.values())
    ]

    async def both() -> tuple[int, int]:
        return await asyncio.gather(
            served([owners[NODE_IDS[0]]], ONE_BROKER), served([*owners.values(), *bootstraps], ALL_BROKERS)
        )

    one, all_ = asyncio.run(both())
    assert one < PER_S * (SHORT_WINDOW_SAMPLES + DURATION_S) < 3 * PER_S * DURATION_S
    assert all_ == pytest.approx(3 * one, rel=BURSTS)  # counted once more for bootstrap ports, it would be five times


@pytest.mark.matrix
def test_brokers_on_zookeeper_are_not_taken_for_kraft(cluster: KafkaCluster, old_kafka: OldKafka) -> None:
    """Brokers with a ZooKeeper pass nothing on to the controller."""

    async def is_kraft(bootstrap: str) -> bool:
        route = Route(bootstrap=tuple(parse_reachable(each) for each in bootstrap.split(",")))
        found = Cluster("test", route, lambda _: None, refresh_s=30.0, connect_timeout_s=30.0)
        await found.refresh()
        assert found.error is None
        return found.is_kraft

    assert asyncio.run(is_kraft(cluster.bootstrap))
    assert not asyncio.run(is_kraft(old_kafka.cluster.bootstrap))
