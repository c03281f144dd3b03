"""A broker of 3.9 on ZooKeeper, and all who read and write its quotas: its tool, a store of ours, a client by hand."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kazoo.client import KazooClient

from config.stores import ZooKeeperStore as Settings
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration
from quotas.stores.zookeeper.store import ZooKeeperStore
from tests.harness.broker import BrokerListener
from tests.harness.client_quotas import describe_client_quotas
from tests.harness.configs import KafkaConfigs
from tests.harness.jars import LAST_ON_ZOOKEEPER
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request
from tests.harness.polling import wait_until
from tests.harness.wire import Address, Connection
from tests.harness.zookeeper import ZooKeeper
from tests.quotas.stores.alter_contract import change

NODE_ID = 3
SASL = "SASL"
TIMEOUT_S = 60.0
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "scram-sha-512.sasl.jaas.config": _MODULE}


@dataclass(slots=True)
class OldKafka:
    """A broker of 3.9 and its ZooKeeper, its tool, a store of the proxy's on that ZooKeeper, and a client of it."""

    zookeeper: ZooKeeper
    cluster: KafkaCluster
    configs: KafkaConfigs
    store: ZooKeeperStore
    client: KazooClient
    topic: str
    _policy: Policy = field(default_factory=Policy)

    @property
    def broker(self) -> Address:
        return self.cluster.direct(NODE_ID)

    def in_force(self) -> Mapping[Entity, Mapping[QuotaKind, float]]:
        """The quotas as a proxy has them: read again only if there may be others."""
        if self.store.changed():
            self._policy = self.store.load(0).policy
        return self._policy.limits

    def alter(self, limits: Mapping[Entity, Mapping[QuotaKind, float | None]]) -> None:
        """As a proxy writes them."""
        outcomes = self.store.alter(Alteration([change(entity, values) for entity, values in limits.items()], "test"))
        assert [outcome.refused for outcome in outcomes] == [None] * len(limits)

    def throttle_ms(self, client_id: str) -> int:
        """What the broker tells a client of its own that produces 20 kB."""
        shape = Shape(self.broker, produce_request(self.topic, client_id, 20_000))
        with Connection(self.broker) as connection:
            return shape.answer(connection.exchange(shape.request), 0.0).throttle_ms

    def wait_same(self, wanted: Mapping[Entity, Mapping[QuotaKind, float]]) -> None:
        """Until these are the quotas, here and as the broker describes them."""
        wait_until(self.in_force, f"in force here: {wanted}", TIMEOUT_S, equals=wanted)
        wait_until(lambda: describe_client_quotas(self.broker), f"described: {wanted}", TIMEOUT_S, equals=wanted)


@contextmanager
def started() -> Iterator[OldKafka]:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    listeners = [BrokerListener(SASL, "SASL_PLAINTEXT", _SCRAM)]
    with (
        ZooKeeper() as zookeeper,
        KafkaCluster(
            version=LAST_ON_ZOOKEEPER, node_ids=[NODE_ID], listeners=listeners, zookeeper=zookeeper.connect
        ) as cluster,
        KafkaConfigs(LAST_ON_ZOOKEEPER, "--bootstrap-server", cluster.bootstrap) as configs,
    ):
        cluster.create_topic("oracle")
        store = ZooKeeperStore(Settings(connect=zookeeper.connect))
        client = KazooClient(hosts=zookeeper.connect)
        client.start()
        yield OldKafka(zookeeper, cluster, configs, store, client, "oracle")
        client.stop()
        client.close()
        store.close()
