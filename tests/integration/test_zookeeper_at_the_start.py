"""A proxy that is started while its ZooKeeper is away: what `quotas.when_unavailable` says, until it comes.

What is printed is how long that took (tests do not judge it: docs/quotas.md says it).
"""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.zookeeper import ZooKeeper
from tests.integration.conftest import fresh_name
from tests.integration.test_zookeeper import takes_clients
from tests.integration.test_zookeeper_outages import TIMEOUT_S, make_tree, write, writer

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]

LIMIT = 100_000
REQUEST_BYTES = 20_000
STATIC = f"quotas: [{{entity: {{client-id: other}}, producer_byte_rate: {LIMIT}}}]\n"


@pytest.fixture(scope="module")
def away() -> Iterator[ZooKeeper]:
    """One that holds a quota; each test starts it, and it is taken away again."""
    zookeeper = ZooKeeper()
    try:
        zookeeper.start()
        with writer(zookeeper.connect) as client:
            make_tree(client)
            write(client, "clients/app", producer_byte_rate=str(LIMIT))
        zookeeper.crash()
        yield zookeeper
    finally:
        zookeeper.stop()


class Started:
    """A proxy that has no ZooKeeper yet."""

    def __init__(self, cluster: KafkaCluster, zookeeper: ZooKeeper, **quotas: str) -> None:
        store: dict[str, Any] = {"type": "zookeeper", "connect": zookeeper.connect}
        settings = {"quotas": {"store": store, **quotas}}
        self.sluice = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=STATIC, settings=settings)
        self._topic = fresh_name("start")
        cluster.create_topic(self._topic)

    def close(self) -> None:
        self.sluice.close()

    def held(self, client_id: str) -> bool:
        """Whether a client is throttled; it is served without an error."""
        (address,) = self.sluice.broker_addresses.values()
        (load,) = run_loads([Shape(address, produce_request(self._topic, client_id, REQUEST_BYTES))], 2.0)
        assert load.errors == []
        return self.sluice.metrics().value("sluice_quota_throttled_responses_total", client_id=client_id) > 0

    def wait_in_force(self, policy: str) -> None:
        """From now on ZooKeeper can be read: until its quotas are in force."""
        since_s = time.monotonic()
        wait_until(lambda: self._value("sluice_quota_staleness_seconds"), "they are read", TIMEOUT_S, equals=0)
        self.sluice.wait_ready()
        print(f"{policy}: in force {time.monotonic() - since_s:.1f} s after it serves")
        assert self._value("sluice_quotas_configured") == 1
        assert self.sluice.metrics().samples("sluice_quota_stand_in") == []
        assert self.held("app")

    def _value(self, name: str) -> float:
        """Of a scrape that may not be answered yet: then another value than any."""
        metrics = self.sluice.metrics()
        return metrics.value(name) if metrics.samples(name) else -1.0


def test_when_unavailable_refuse_takes_clients_once_quotas_are_read(old_cluster: KafkaCluster, away: ZooKeeper) -> None:
    with closing(Started(old_cluster, away)) as started:
        started.sluice.launch()
        wait_until(lambda: "quotas: zookeeper://" in started.sluice.get("/readyz")[1], "it says why", TIMEOUT_S)
        assert started.sluice.get("/readyz")[0] == 503
        addresses = [started.sluice.address, *started.sluice.broker_addresses.values()]
        assert not any(map(takes_clients, addresses))
        away.start()
        started.wait_in_force("refuse")
        assert all(map(takes_clients, addresses))
    away.crash()


@pytest.mark.parametrize(
    ("policy", "more", "is_held"),
    [("unlimited", {}, False), ("static", {"static": "quotas.yaml"}, True)],
)
def test_stand_in_quotas_hold_until_zookeeper_is_there(
    old_cluster: KafkaCluster, away: ZooKeeper, policy: str, more: dict[str, str], *, is_held: bool
) -> None:
    with closing(Started(old_cluster, away, when_unavailable=policy, **more)) as started:
        started.sluice.start()
        assert started.sluice.metrics().value("sluice_quota_stand_in", mode=policy) == 1
        assert started.held("other") == is_held
        assert not started.held("another")
        away.start()
        started.wait_in_force(policy)
    away.crash()


def test_a_tree_that_is_not_there_yet_is_waited_for(old_cluster: KafkaCluster) -> None:
    """ZooKeeper comes before its brokers do, which make the tree."""
    with ZooKeeper() as empty, closing(Started(old_cluster, empty, when_unavailable="unlimited")) as started:
        empty.crash()
        started.sluice.start()
        empty.start()
        failed = "quotas not loaded, no client is limited until then"
        wait_until(lambda: any("no Kafka tree" in str(line) for line in started.sluice.logs()), "it is told", TIMEOUT_S)
        told = [line["event"] for line in started.sluice.logs() if line["event"].startswith("quotas not loaded")]
        assert set(told) == {failed}
        with writer(empty.connect) as client:
            make_tree(client)
            write(client, "clients/app", producer_byte_rate=str(LIMIT))
            started.wait_in_force("a tree that comes later")
