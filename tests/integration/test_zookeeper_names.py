"""The same oracle for every name, address and number, and for what `sluice quotas` says of a ZooKeeper."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from tests.harness.admin import AdminError
from tests.harness.admin import Entity as Named
from tests.harness.client_quotas import alter_client_quotas, describe_client_quotas
from tests.harness.configs import KafkaConfigs
from tests.harness.polling import wait_until
from tests.integration.old_kafka import TIMEOUT_S, OldKafka

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]

RATE, FETCH, PERCENTAGE, MUTATIONS, CONNECTIONS = QuotaKind
_SLUICE_QUOTAS = (str(Path(sys.executable).parent / "sluice"), "quotas")

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


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_every_name_means_the_same_to_both(old_kafka: OldKafka, old_configs: KafkaConfigs, name: str) -> None:
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
        for tool in (old_kafka.configs, old_configs):
            in_words = {key: int(value) if key.endswith("byte_rate") else value for key, value in words.items()}
            tool.alter(theirs, **(words if tool is old_kafka.configs else in_words))
            old_kafka.wait_same({ours: limits})
            tool.alter(theirs, **dict.fromkeys(words))
            old_kafka.wait_same({})
        old_kafka.alter({ours: limits})
        old_kafka.wait_same({ours: limits})
        described = old_kafka.configs.run("--describe", *theirs.arguments())
        assert f"'{name}'" in described
        assert "controller_mutation_rate=1.234567825E7" in described
        assert f"'{name}'" in old_configs.run("--describe", *theirs.arguments())
        old_kafka.configs.alter(theirs, **dict.fromkeys(words))  # they can be deleted with it, and it would say if not
        old_kafka.wait_same({})


def test_ip_quotas_mean_the_same_to_store_and_broker(old_kafka: OldKafka) -> None:
    for ours, theirs in ((Entity(ip="10.0.0.1"), Named(ip="10.0.0.1")), (Entity(ip=Default.DEFAULT), Named(ip=""))):
        quota = {ours: {CONNECTIONS: 100.0}}
        old_kafka.configs.alter(theirs, connection_creation_rate=100)
        old_kafka.wait_same(quota)
        old_kafka.configs.alter(theirs, connection_creation_rate=None)
        old_kafka.wait_same({})
        old_kafka.alter(quota)
        old_kafka.wait_same(quota)
        old_kafka.alter({ours: {CONNECTIONS: None}})
        old_kafka.wait_same({})
    with pytest.raises(AdminError, match="is not a valid IP or resolvable host"):  # %3A%3A1 to the broker
        old_kafka.configs.alter(Named(ip="::1"), connection_creation_rate=100)
    old_kafka.configs.alter(Named(ip="localhost"), connection_creation_rate=100)  # which the broker resolves by itself
    wait_until(old_kafka.store.changed, "told", TIMEOUT_S)
    [warning] = old_kafka.store.load(0).warnings
    assert "/config/ips/localhost" in str(warning)
    old_kafka.configs.alter(Named(ip="localhost"), connection_creation_rate=None)
    old_kafka.wait_same({})


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
def test_quota_values_are_read_as_the_broker_reads_them(
    old_kafka: OldKafka, kind: QuotaKind, limit: float, here: float
) -> None:
    entity = Entity(client_id="numbers")
    alter_client_quotas(old_kafka.broker, entity, {kind: limit})
    wait_until(lambda: old_kafka.in_force().get(entity), "in force", TIMEOUT_S, equals={kind: here})
    alter_client_quotas(old_kafka.broker, entity, {kind: None})
    wait_until(lambda: entity not in old_kafka.in_force(), "deleted", TIMEOUT_S)


def test_zero_bytes_are_no_limit_at_that_broker(old_kafka: OldKafka) -> None:
    entity = Entity(client_id="zero")
    alter_client_quotas(old_kafka.broker, entity, {RATE: 1_000.0})
    wait_until(lambda: old_kafka.throttle_ms("zero") > 0, "throttled by the broker", TIMEOUT_S)
    alter_client_quotas(old_kafka.broker, entity, {RATE: 0.0})
    wait_until(lambda: old_kafka.throttle_ms("zero"), "not throttled any more", TIMEOUT_S, equals=0)
    wait_until(lambda: old_kafka.in_force().get(entity) == {RATE: math.inf}, "nor here", TIMEOUT_S)
    alter_client_quotas(old_kafka.broker, entity, {RATE: None})
    wait_until(lambda: entity not in old_kafka.in_force(), "deleted", TIMEOUT_S)


def test_sluice_quotas_says_what_kafka_configs_says(old_kafka: OldKafka) -> None:
    """The same words for the same quotas, and what it alters the broker has."""

    def say(command: str, *arguments: str) -> str:
        line = [*_SLUICE_QUOTAS, command, "--zookeeper", old_kafka.zookeeper.connect, *arguments]
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    entities = [
        Named("<default>", None),
        Named("a b", ""),
        Named("", "büro"),
        Named(client_id=""),
        Named(ip="10.0.0.1"),
    ]
    try:
        for number, entity in enumerate(entities):
            quota = (
                "connection_creation_rate=100" if entity.ip else "producer_byte_rate=12345678,request_percentage=0.5"
            )
            if number % 2:
                say("alter", *entity.arguments(), "--add-config", quota)
            else:
                old_kafka.configs.run("--alter", *entity.arguments(), "--add-config", quota)
        wait_until(lambda: len(old_kafka.in_force()) == len(entities), "in force", TIMEOUT_S)
        assert describe_client_quotas(old_kafka.broker) == old_kafka.in_force()
        for kinds in (["users"], ["clients"], ["users", "clients"], ["ips"]):
            words = [word for kind in kinds for word in ("--entity-type", kind)]
            assert _lines(say("describe", *words)) == _lines(old_kafka.configs.describe(*kinds)) != []
    finally:
        old_kafka.alter({entity: dict.fromkeys(limits) for entity, limits in old_kafka.in_force().items()})


def _lines(text: str) -> list[tuple[str, list[str]]]:
    """What is said of whom: entities and limits come in the order of a hash."""
    said = [line.partition(" are ") for line in text.splitlines() if line]
    return sorted((whose, sorted(limits.split(", "))) for whose, _, limits in said)
