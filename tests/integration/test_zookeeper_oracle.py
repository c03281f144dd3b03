"""Kafka 3.9 on ZooKeeper as the oracle: what its tools set is in force here, what is set here its broker enforces."""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kazoo.client import KazooClient

from config.stores import ZooKeeperStore as Settings
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration
from quotas.stores.zookeeper.store import ZooKeeperStore
from quotas.stores.zookeeper.tree import path_of
from tests.harness.admin import AdminError
from tests.harness.admin import Entity as Named
from tests.harness.broker import BrokerListener
from tests.harness.client_quotas import alter_client_quotas, describe_client_quotas
from tests.harness.configs import KafkaConfigs
from tests.harness.jars import LAST_ON_ZOOKEEPER, ZOOKEEPER_TOOLS
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request
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


@dataclass(slots=True)
class OldKafka:
    """A broker of 3.9 and its ZooKeeper, its tool, a store of the proxy's on that ZooKeeper, and a client of it."""

    zookeeper: ZooKeeper
    cluster: KafkaCluster
    configs: KafkaConfigs
    store: ZooKeeperStore
    client: KazooClient
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

    def throttle_ms(self, topic: str, client_id: str) -> int:
        """What the broker tells a client of its own that produces 20 kB."""
        shape = Shape(self.broker, produce_request(topic, client_id, 20_000))
        with Connection(self.broker) as connection:
            return shape.answer(connection.exchange(shape.request), 0.0).throttle_ms

    def wait_same(self, wanted: Mapping[Entity, Mapping[QuotaKind, float]]) -> None:
        """Until these are the quotas, here and as the broker describes them."""
        wait_until(lambda: self.in_force() == wanted, f"in force here: {wanted}", TIMEOUT_S)
        wait_until(lambda: describe_client_quotas(self.broker) == wanted, f"described: {wanted}", TIMEOUT_S)


@pytest.fixture(scope="module")
def old(kafka: OldKafka) -> Iterator[KafkaConfigs]:
    """kafka-configs of 2.8, which goes to ZooKeeper itself."""
    with KafkaConfigs(ZOOKEEPER_TOOLS, "--zookeeper", kafka.zookeeper.connect) as configs:
        yield configs


@pytest.fixture(scope="module")
def topic(kafka: OldKafka) -> str:
    name = fresh_name("zookeeper-oracle")
    kafka.cluster.create_topic(name)
    return name


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

        def wait_told(*change: Any) -> None:
            since_s = time.monotonic()
            wait_until(lambda: is_told(*change), f"in force: {change}", TIMEOUT_S)
            waits_s.append(time.monotonic() - since_s)

        waits_s: list[float] = []
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
            wait_told(said, RATE, None, 1_048_576.0)
            assert is_told(said, PERCENTAGE, None, 12.5)
        assert kafka.in_force() == describe_client_quotas(kafka.broker)
        for entity, said in whose:
            kafka.configs.alter(entity, producer_byte_rate=5)
            wait_told(said, RATE, 1_048_576.0, 5.0)
            kafka.configs.alter(entity, producer_byte_rate=None, request_percentage=None)
            wait_told(said, RATE, 5.0, None)
        print(f"in force after kafka-configs: {max(waits_s):.2f} s at most, of {len(waits_s)} changes")
        assert sluice.metrics().value("sluice_quotas_configured") == 0
        assert kafka.in_force() == describe_client_quotas(kafka.broker) == {}


def test_what_is_written_here_the_broker_enforces(kafka: OldKafka, topic: str) -> None:
    """A producer straight to the broker is throttled by it, and not any more when the quota is gone."""
    client_id = "straight to the broker"
    quota = {Entity(client_id=client_id): {RATE: 1_000.0}}
    assert kafka.throttle_ms(topic, client_id) == 0
    kafka.alter(quota)
    kafka.wait_same(quota)
    wait_until(lambda: kafka.throttle_ms(topic, client_id) > 0, "throttled by the broker", TIMEOUT_S)
    kafka.alter({Entity(client_id=client_id): {RATE: None}})
    wait_until(lambda: kafka.throttle_ms(topic, client_id) == 0, "not throttled any more", TIMEOUT_S)
    assert describe_client_quotas(kafka.broker) == {}


def test_credentials_survive_what_is_written_here(kafka: OldKafka) -> None:
    user = "carol"
    kafka.configs.alter(Named(user=user), SCRAM_SHA_512="[iterations=4096,password=secret]")

    def logs_in() -> bool:
        with Connection(Address.parse(kafka.cluster.bootstrap_of(SASL))) as connection:
            return log_in_scram(connection, user, "secret").error_code == 0

    wait_until(logs_in, "the credentials at the broker", TIMEOUT_S)
    for limits in ({RATE: 1_000.0, PERCENTAGE: 50.0}, {RATE: None}, {PERCENTAGE: None}):
        kafka.alter({Entity(user=user): limits})
        kafka.alter({Entity(user, "app"): limits})
        wait_until(lambda: describe_client_quotas(kafka.broker) == kafka.in_force(), "both the same", TIMEOUT_S)
        assert "SCRAM-SHA-512=iterations=4096" in kafka.configs.run("--describe", *Named(user=user).arguments())
        assert logs_in()
    assert kafka.in_force() == {}
    kafka.configs.alter(Named(user=user), SCRAM_SHA_512=None)


def test_the_tool_that_writes_to_zookeeper_itself(kafka: OldKafka, old: KafkaConfigs) -> None:
    """2.8: what it sets is in force here and at the broker, what it says of ours is right."""
    quotas = {
        "user-principal 'old one'": (Entity(user="old one"), Named(user="old one")),
        "client-id 'a%b'": (Entity(client_id="a%b"), Named(client_id="a%b")),
        "user-principal 'old one', client-id 'a%b'": (Entity("old one", "a%b"), Named("old one", "a%b")),
        "default user-principal, default client-id": (Entity(Default.DEFAULT, Default.DEFAULT), Named("", "")),
    }
    for said, (ours, theirs) in quotas.items():
        old.alter(theirs, producer_byte_rate=1024, request_percentage=12.5)
        kafka.wait_same({ours: {RATE: 1024.0, PERCENTAGE: 12.5}})
        assert f"Configs for {said} are " in old.run("--describe", *theirs.arguments())
        old.alter(theirs, producer_byte_rate=None, request_percentage=None)
        kafka.wait_same({})
        kafka.alter({ours: {FETCH: 2048.0, MUTATIONS: 0.5}})
        line = f"Configs for {said} are consumer_byte_rate=2048,controller_mutation_rate=0.5\n"
        assert line in old.run("--describe", *theirs.arguments())
        old.alter(theirs, consumer_byte_rate=None, controller_mutation_rate=None)
        kafka.wait_same({})


def test_a_node_deleted_by_hand_changes_nothing(kafka: OldKafka, topic: str) -> None:
    """Without a notification, at the broker and here; with one both forget the quota."""
    by_hand, later = "deleted by hand", Entity(client_id="later")
    quota = {Entity(client_id=by_hand): {RATE: 1_000.0}}
    kafka.alter(quota)
    kafka.wait_same(quota)
    wait_until(lambda: kafka.throttle_ms(topic, by_hand) > 0, "throttled by the broker", TIMEOUT_S)
    kafka.client.delete(path_of(Entity(client_id=by_hand)))
    kafka.configs.alter(Named(client_id="later"), producer_byte_rate=1_000)
    # Both have read all notifications that there are.
    wait_until(lambda: later in kafka.in_force(), "the later one in force", TIMEOUT_S)
    wait_until(lambda: kafka.throttle_ms(topic, "later") > 0, "and at the broker", TIMEOUT_S)
    assert kafka.throttle_ms(topic, by_hand) > 0
    assert kafka.in_force() == {**quota, later: {RATE: 1_000.0}}
    # What the broker describes is what lies in ZooKeeper, and not what it enforces.
    assert describe_client_quotas(kafka.broker) == {later: {RATE: 1_000.0}}
    told = '{"version":2,"entity_path":"clients/deleted%20by%20hand"}'
    kafka.client.create("/config/changes/config_change_", told.encode(), sequence=True)
    kafka.wait_same({later: {RATE: 1_000.0}})
    wait_until(lambda: kafka.throttle_ms(topic, by_hand) == 0, "forgotten by the broker", TIMEOUT_S)
    kafka.alter({later: {RATE: None}})


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_every_name_means_the_same_to_both(kafka: OldKafka, old: KafkaConfigs, name: str) -> None:
    """As user, client-id and both; set by the tool, by the old tool and by us."""
    default = Default.DEFAULT
    quotas = {
        Entity(user=name): Named(user=name),
        Entity(client_id=name): Named(client_id=name),
        Entity(name, name): Named(name, name),
        Entity(name, default): Named(name, ""),
        Entity(default, name): Named("", name),
    }
    limits = {RATE: 1024.0, FETCH: 12_345_678.0, PERCENTAGE: 0.5, MUTATIONS: 12_345_678.25}
    words = {kind.value: limit for kind, limit in limits.items()}
    for ours, theirs in quotas.items():
        for tool in (kafka.configs, old):
            in_words = {key: int(value) if key.endswith("byte_rate") else value for key, value in words.items()}
            tool.alter(theirs, **(words if tool is kafka.configs else in_words))
            kafka.wait_same({ours: limits})
            tool.alter(theirs, **dict.fromkeys(words))
            kafka.wait_same({})
        kafka.alter({ours: limits})
        kafka.wait_same({ours: limits})
        described = kafka.configs.run("--describe", *theirs.arguments())
        assert f"'{name}'" in described
        assert "controller_mutation_rate=1.234567825E7" in described
        assert f"'{name}'" in old.run("--describe", *theirs.arguments())
        kafka.configs.alter(theirs, **dict.fromkeys(words))  # they can be deleted with it, and it would say if not
        kafka.wait_same({})


@pytest.mark.matrix
def test_addresses(kafka: OldKafka) -> None:
    for ours, theirs in ((Entity(ip="10.0.0.1"), Named(ip="10.0.0.1")), (Entity(ip=Default.DEFAULT), Named(ip=""))):
        quota = {ours: {CONNECTIONS: 100.0}}
        kafka.configs.alter(theirs, connection_creation_rate=100)
        kafka.wait_same(quota)
        kafka.configs.alter(theirs, connection_creation_rate=None)
        kafka.wait_same({})
        kafka.alter(quota)
        kafka.wait_same(quota)
        kafka.alter({ours: {CONNECTIONS: None}})
        kafka.wait_same({})
    with pytest.raises(AdminError, match="is not a valid IP or resolvable host"):  # %3A%3A1 to the broker
        kafka.configs.alter(Named(ip="::1"), connection_creation_rate=100)
    kafka.configs.alter(Named(ip="localhost"), connection_creation_rate=100)  # which the broker resolves by itself
    wait_until(kafka.store.changed, "told", TIMEOUT_S)
    [warning] = kafka.store.load(0).warnings
    assert "/config/ips/localhost" in str(warning)
    kafka.configs.alter(Named(ip="localhost"), connection_creation_rate=None)
    kafka.wait_same({})


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("kind", "limit", "here"),
    [
        (RATE, 0.0, math.inf),
        (RATE, 5.9999999, 6.0),
        (RATE, 1e18, 1e18),
        (PERCENTAGE, 0.0, 0.0),
        (PERCENTAGE, 1e-300, 1e-300),
        (PERCENTAGE, 1e300, 1e300),
        (MUTATIONS, 0.1, 0.1),
    ],
)
def test_numbers_as_that_broker_takes_them(kafka: OldKafka, kind: QuotaKind, limit: float, here: float) -> None:
    entity = Entity(client_id="numbers")
    alter_client_quotas(kafka.broker, entity, {kind: limit})
    wait_until(lambda: kafka.in_force().get(entity) == {kind: here}, "in force", TIMEOUT_S)
    alter_client_quotas(kafka.broker, entity, {kind: None})
    wait_until(lambda: entity not in kafka.in_force(), "deleted", TIMEOUT_S)


@pytest.mark.matrix
def test_zero_bytes_are_no_limit_at_that_broker(kafka: OldKafka, topic: str) -> None:
    entity = Entity(client_id="zero")
    alter_client_quotas(kafka.broker, entity, {RATE: 1_000.0})
    wait_until(lambda: kafka.throttle_ms(topic, "zero") > 0, "throttled by the broker", TIMEOUT_S)
    alter_client_quotas(kafka.broker, entity, {RATE: 0.0})
    wait_until(lambda: kafka.throttle_ms(topic, "zero") == 0, "not throttled any more", TIMEOUT_S)
    wait_until(lambda: kafka.in_force().get(entity) == {RATE: math.inf}, "nor here", TIMEOUT_S)
    alter_client_quotas(kafka.broker, entity, {RATE: None})
    wait_until(lambda: entity not in kafka.in_force(), "deleted", TIMEOUT_S)
