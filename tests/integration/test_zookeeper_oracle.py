"""Kafka 3.9 on ZooKeeper as the oracle: what its tools set is in force here, what is set here its broker enforces."""

import time
from typing import Any

import pytest

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.zookeeper.tree import path_of
from tests.harness.admin import Entity as Named
from tests.harness.client_quotas import describe_client_quotas
from tests.harness.configs import KafkaConfigs
from tests.harness.polling import wait_until
from tests.harness.sasl import log_in_scram
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.old_kafka import NODE_ID, SASL, TIMEOUT_S, OldKafka

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]

RATE, FETCH, PERCENTAGE, MUTATIONS, _ = QuotaKind


def test_quota_set_by_kafka_configs_is_in_force(old_kafka: OldKafka) -> None:
    """Set, changed and deleted: the running proxy says of each what it was and what it is."""
    store = {"type": "zookeeper", "connect": old_kafka.zookeeper.connect}
    with SluiceProcess(old_kafka.cluster.bootstrap, [NODE_ID], settings={"quotas": {"store": store}}) as sluice:

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
            old_kafka.configs.alter(entity, producer_byte_rate=1_048_576, request_percentage=12.5)
            wait_told(said, RATE, None, 1_048_576.0)
            assert is_told(said, PERCENTAGE, None, 12.5)
        assert old_kafka.in_force() == describe_client_quotas(old_kafka.broker)
        for entity, said in whose:
            old_kafka.configs.alter(entity, producer_byte_rate=5)
            wait_told(said, RATE, 1_048_576.0, 5.0)
            old_kafka.configs.alter(entity, producer_byte_rate=None, request_percentage=None)
            wait_told(said, RATE, 5.0, None)
        print(f"in force after kafka-configs: {max(waits_s):.2f} s at most, of {len(waits_s)} changes")
        assert sluice.metrics().value("sluice_quotas_configured") == 0
        assert old_kafka.in_force() == describe_client_quotas(old_kafka.broker) == {}


def test_quota_written_by_the_store_is_enforced_by_broker(old_kafka: OldKafka) -> None:
    """A producer straight to the broker is throttled by it, and not any more when the quota is gone."""
    client_id = "straight to the broker"
    quota = {Entity(client_id=client_id): {RATE: 1_000.0}}
    assert old_kafka.throttle_ms(client_id) == 0
    old_kafka.alter(quota)
    old_kafka.wait_same(quota)
    wait_until(lambda: old_kafka.throttle_ms(client_id) > 0, "throttled by the broker", TIMEOUT_S)
    old_kafka.alter({Entity(client_id=client_id): {RATE: None}})
    wait_until(lambda: old_kafka.throttle_ms(client_id), "not throttled any more", TIMEOUT_S, equals=0)
    assert describe_client_quotas(old_kafka.broker) == {}


def test_credentials_survive_what_is_written_here(old_kafka: OldKafka) -> None:
    user = "carol"
    old_kafka.configs.alter(Named(user=user), SCRAM_SHA_512="[iterations=4096,password=secret]")

    def logs_in() -> bool:
        with Connection(Address.parse(old_kafka.cluster.bootstrap_of(SASL))) as connection:
            return log_in_scram(connection, user, "secret").error_code == 0

    wait_until(logs_in, "the credentials at the broker", TIMEOUT_S)
    for limits in ({RATE: 1_000.0, PERCENTAGE: 50.0}, {RATE: None}, {PERCENTAGE: None}):
        old_kafka.alter({Entity(user=user): limits})
        old_kafka.alter({Entity(user, "app"): limits})
        wait_until(lambda: describe_client_quotas(old_kafka.broker) == old_kafka.in_force(), "both the same", TIMEOUT_S)
        assert "SCRAM-SHA-512=iterations=4096" in old_kafka.configs.run("--describe", *Named(user=user).arguments())
        assert logs_in()
    assert old_kafka.in_force() == {}
    old_kafka.configs.alter(Named(user=user), SCRAM_SHA_512=None)


def test_quota_set_by_kafka_configs_zookeeper_is_in_force(old_kafka: OldKafka, old_configs: KafkaConfigs) -> None:
    """2.8: what it sets is in force here and at the broker, what it says of ours is right."""
    quotas = {
        "user-principal 'old one'": (Entity(user="old one"), Named(user="old one")),
        "client-id 'a%b'": (Entity(client_id="a%b"), Named(client_id="a%b")),
        "user-principal 'old one', client-id 'a%b'": (Entity("old one", "a%b"), Named("old one", "a%b")),
        "default user-principal, default client-id": (Entity(Default.DEFAULT, Default.DEFAULT), Named("", "")),
    }
    for said, (ours, theirs) in quotas.items():
        old_configs.alter(theirs, producer_byte_rate=1024, request_percentage=12.5)
        old_kafka.wait_same({ours: {RATE: 1024.0, PERCENTAGE: 12.5}})
        assert f"Configs for {said} are " in old_configs.run("--describe", *theirs.arguments())
        old_configs.alter(theirs, producer_byte_rate=None, request_percentage=None)
        old_kafka.wait_same({})
        old_kafka.alter({ours: {FETCH: 2048.0, MUTATIONS: 0.5}})
        line = f"Configs for {said} are consumer_byte_rate=2048,controller_mutation_rate=0.5\n"
        assert line in old_configs.run("--describe", *theirs.arguments())
        old_configs.alter(theirs, consumer_byte_rate=None, controller_mutation_rate=None)
        old_kafka.wait_same({})


def test_a_node_deleted_by_hand_changes_nothing(old_kafka: OldKafka) -> None:
    """Without a notification, at the broker and here; with one both forget the quota."""
    by_hand, later = "deleted by hand", Entity(client_id="later")
    quota = {Entity(client_id=by_hand): {RATE: 1_000.0}}
    old_kafka.alter(quota)
    old_kafka.wait_same(quota)
    wait_until(lambda: old_kafka.throttle_ms(by_hand) > 0, "throttled by the broker", TIMEOUT_S)
    old_kafka.client.delete(path_of(Entity(client_id=by_hand)))
    old_kafka.configs.alter(Named(client_id="later"), producer_byte_rate=1_000)
    # Both have read all notifications that there are.
    wait_until(lambda: later in old_kafka.in_force(), "the later one in force", TIMEOUT_S)
    wait_until(lambda: old_kafka.throttle_ms("later") > 0, "and at the broker", TIMEOUT_S)
    assert old_kafka.throttle_ms(by_hand) > 0
    assert old_kafka.in_force() == {**quota, later: {RATE: 1_000.0}}
    # What the broker describes is what lies in ZooKeeper, and not what it enforces.
    assert describe_client_quotas(old_kafka.broker) == {later: {RATE: 1_000.0}}
    told = '{"version":2,"entity_path":"clients/deleted%20by%20hand"}'
    old_kafka.client.create("/config/changes/config_change_", told.encode(), sequence=True)
    old_kafka.wait_same({later: {RATE: 1_000.0}})
    wait_until(lambda: old_kafka.throttle_ms(by_hand), "forgotten by the broker", TIMEOUT_S, equals=0)
    old_kafka.alter({later: {RATE: None}})
