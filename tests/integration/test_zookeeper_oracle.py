"""Kafka 3.9 on ZooKeeper as the oracle: what its tools set is in force here, what is set here its broker enforces."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from config.stores import ZooKeeperStore as Settings
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration
from quotas.stores.zookeeper.store import ZooKeeperStore
from quotas.stores.zookeeper.tree import path_of
from tests.harness.admin import Entity as Named
from tests.harness.broker import BrokerListener
from tests.harness.client_quotas import alter_client_quotas, describe_client_quotas
from tests.harness.configs import KafkaConfigs
from tests.harness.jars import LAST_ON_ZOOKEEPER, ZOOKEEPER_TOOLS
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.measure import wait_until
from tests.harness.sasl import log_in_scram
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.harness.zookeeper import ZooKeeper
from tests.integration.conftest import fresh_name
from tests.quotas.stores.alter_contract import change

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NODE_ID = 3
SASL = "SASL"
TIMEOUT_S = 60.0
RATE, FETCH, PERCENTAGE, MUTATIONS, CONNECTIONS = QuotaKind
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "scram-sha-512.sasl.jaas.config": MODULE}

NAMES = [
    "a b",
    "100%",
    "%41",
    "a+b*c~d",
    "<default>",
    "<Default>",
    "default",
    "CN=client,OU=büro 北京 😀,C=DE",
    "slash/colon:at@",
    "...",
    "\"quotes' and \\backslashes\\",
    " padded ",
    "x" * 200,
]


@dataclass(frozen=True, slots=True)
class OldKafka:
    """A broker of 3.9 and its ZooKeeper, its tool, a store of the proxy's on that ZooKeeper, and a client of it."""

    zookeeper: ZooKeeper
    cluster: KafkaCluster
    configs: KafkaConfigs
    store: ZooKeeperStore
    client: KazooClient

    @property
    def broker(self) -> Address:
        return self.cluster.direct(NODE_ID)

    def in_force(self) -> Mapping[Entity, Mapping[QuotaKind, float]]:
        """The quotas as a proxy has them; read again only if a notification has told of a change."""
        return self.store.load(0).policy.limits

    def alter(self, limits: Mapping[Entity, Mapping[QuotaKind, float | None]]) -> None:
        """As a proxy writes them."""
        outcomes = self.store.alter(Alteration([change(entity, values) for entity, values in limits.items()], "test"))
        assert [outcome.refused for outcome in outcomes] == [None] * len(limits)

    def wait_same(self, wanted: Mapping[Entity, Mapping[QuotaKind, float]]) -> None:
        """Until these quotas are among those that both know, and both know the same."""
        assert wanted.items() <= self.in_force().items()
        wait_until(lambda: describe_client_quotas(self.broker) == self.in_force(), "both the same", TIMEOUT_S)


@pytest.fixture(scope="module")
def kafka() -> Iterator[OldKafka]:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    listeners = [BrokerListener(SASL, "SASL_PLAINTEXT", SCRAM)]
    with (
        ZooKeeper() as zookeeper,
        KafkaCluster(
            version=LAST_ON_ZOOKEEPER, node_ids=[NODE_ID], listeners=listeners, zookeeper=zookeeper.connect
        ) as cluster,
        KafkaConfigs(LAST_ON_ZOOKEEPER, "--bootstrap-server", cluster.bootstrap) as configs,
    ):
        store = ZooKeeperStore(Settings(connect=zookeeper.connect))
        client = KazooClient(hosts=zookeeper.connect)
        client.start()
        yield OldKafka(zookeeper, cluster, configs, store, client)
        client.stop()
        client.close()
        store.close()


def test_what_kafka_configs_sets_is_in_force(kafka: OldKafka) -> None:
    """Set, changed and deleted: the running proxy says of each what it was and what it is."""
    store = {"type": "zookeeper", "connect": kafka.zookeeper.connect}
    with SluiceProcess(kafka.cluster.bootstrap, [NODE_ID], settings={"quotas": {"store": store}}) as sluice:

        def is_told(quota: str, kind: QuotaKind, old: float | None, new: float | None) -> bool:
            wanted = {"event": "quota changed", "quota": quota, "kind": kind, "old": old, "new": new}
            return any(wanted.items() <= line.items() for line in sluice.logs())

        whose = [
            (Named(user="a b"), "user='a b'"),
            (Named(user="a b", client_id="app"), "user='a b', client-id=app"),
            (Named(user="a b", client_id=""), "user='a b', client-id=<default>"),
            (Named(user=""), "user=<default>"),
            (Named(client_id="100%"), "client-id=100%"),
            (Named(client_id=""), "client-id=<default>"),
        ]
        for entity, said in whose:
            kafka.configs.alter(entity, producer_byte_rate=1_048_576, request_percentage=12.5)
            wait_until(lambda said=said: is_told(said, RATE, None, 1_048_576.0), f"{said} in force", TIMEOUT_S)
            assert is_told(said, PERCENTAGE, None, 12.5)
        assert kafka.in_force() == describe_client_quotas(kafka.broker)
        for entity, said in whose:
            kafka.configs.alter(entity, producer_byte_rate=5)
            wait_until(lambda said=said: is_told(said, RATE, 1_048_576.0, 5.0), f"{said} changed", TIMEOUT_S)
            kafka.configs.alter(entity, producer_byte_rate=None, request_percentage=None)
            wait_until(lambda said=said: is_told(said, RATE, 5.0, None), f"{said} deleted", TIMEOUT_S)
        assert sluice.metrics().value("sluice_quotas_configured") == 0
        assert kafka.in_force() == describe_client_quotas(kafka.broker) == {}
