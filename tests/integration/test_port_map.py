"""Clients that reach the proxy at other ports than it binds, and brokers' ports that open and close while it runs."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.harness.certificates import Authority, common_name
from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_3, KAFKA_PYTHON, ClientKind
from tests.harness.clients.tasks import Consume, Produce, Security
from tests.harness.gate import Gate
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, answers_api_versions
from tests.integration.conftest import fresh_name
from tests.integration.operations import Whom

pytestmark = [pytest.mark.slow, pytest.mark.integration]

RECORDS = 300
ZONE = "sluice.test"


@dataclass(frozen=True, slots=True)
class Mapped:
    sluice: SluiceProcess
    gates: dict[int, Gate]
    """Before each broker's port, and before the bootstrap port (-1), at the ports that clients are told."""
    only: Gate
    """Before the one port of the listener with host names."""
    told: Address
    names: Address
    authority: Authority

    def ca(self) -> Security:
        return Security(protocol="SSL", ca=str(self.authority.certificate))


@pytest.fixture(scope="module")
def mapped(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapped]:
    ids = cluster.node_ids
    told, bound = ([Address(LOOPBACK, port) for port in free_ports(len(ids) + 2)] for _ in range(2))
    brokers = {
        str(node_id): {"bind": str(own.port), "advertise": str(outside.port)}
        for node_id, own, outside in zip(ids, bound[2:], told[2:], strict=True)
    }
    authority = Authority(tmp_path_factory.mktemp("mapped"))
    server = authority.issue("sluice", common_name("sluice"), [f"kafka.{ZONE}", *(f"b{each}.{ZONE}" for each in ids)])
    listeners = {
        "MAPPED": {"bind": str(bound[0]), "advertise": str(told[0]), "brokers": brokers},
        "NAMES": {
            "bind": str(bound[1]),
            "advertise": f"kafka.{ZONE}:{told[1].port}",
            "broker_host": f"b{{node_id}}.{ZONE}",
            "tls": {"certificate": str(server.certificate), "key": str(server.key)},
        },
    }
    with ExitStack() as stack:
        sluice = stack.enter_context(SluiceProcess(cluster.bootstrap, ids, listeners=listeners))
        first, only, *others = [stack.enter_context(Gate(*pair)) for pair in zip(told, bound, strict=True)]
        names = Address(f"kafka.{ZONE}", told[1].port)
        yield Mapped(sluice, {-1: first, **dict(zip(ids, others, strict=True))}, only, told[0], names, authority)


def produce_and_consume(kind: ClientKind, whom: Whom, security: Security) -> None:
    with kind.run(Produce(**whom, security=security, records=RECORDS)) as producer:
        produced = producer.result()
    with kind.run(Consume(**whom, security=security, records=RECORDS, group=whom["topic"])) as consumer:
        consumed = consumer.result()
    assert (produced.records, consumed.records, consumed.corrupt) == (RECORDS, RECORDS, 0)


@pytest.mark.parametrize("kind", [KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_3], ids=lambda kind: kind.name)
def test_every_client_works_at_the_ports_that_it_is_told(
    mapped: Mapped, cluster: KafkaCluster, kind: ClientKind
) -> None:
    """As with NodePort, `docker run -p` and NAT."""
    topic, leader = fresh_name("mapped"), cluster.node_ids[-1]
    cluster.create_topic(topic, leader=leader)
    before = {node_id: gate.connections for node_id, gate in mapped.gates.items()}
    produce_and_consume(kind, Whom(bootstrap=str(mapped.told), client_id="mapped", topic=topic), Security())
    assert mapped.gates[-1].connections > before[-1]
    assert mapped.gates[leader].connections >= before[leader] + 2


def test_java_works_at_host_names_on_another_port_than_the_bound_one(
    mapped: Mapped, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a Route on 443."""
    hosts = tmp_path / "hosts"
    names = [f"kafka.{ZONE}", *(f"b{node_id}.{ZONE}" for node_id in cluster.node_ids), "localhost"]
    hosts.write_text("".join(f"{LOOPBACK} {name}\n" for name in names), encoding="utf-8")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djdk.net.hosts.file={hosts}")
    topic = fresh_name("names")
    cluster.create_topic(topic, leader=cluster.node_ids[-1])
    produce_and_consume(JAVA_3, Whom(bootstrap=str(mapped.names), client_id="names", topic=topic), mapped.ca())
    assert mapped.only.connections >= 4


def test_doctor_connects_to_advertised_ports_that_check_prints(mapped: Mapped, cluster: KafkaCluster) -> None:
    said = mapped.sluice.command("check", "sluice.yaml")
    assert f"listener MAPPED: bootstrap.servers {mapped.told}, bound at " in said
    assert f"listener MAPPED: broker {cluster.node_ids[0]} {LOOPBACK}:" in said
    assert f"listener NAMES: every broker b{{node_id}}.{ZONE}:{mapped.names.port}, bound at " in said
    assert "listener PLAIN" not in said
    before = {node_id: gate.connections for node_id, gate in mapped.gates.items()}
    found = mapped.sluice.command("doctor", "sluice.yaml", "--listener", "MAPPED")
    assert "FAIL" not in found, found
    assert found.count("ok    advertised") == len(cluster.node_ids)
    assert all(gate.connections > before[node_id] for node_id, gate in mapped.gates.items())


def test_a_broker_that_is_added_to_the_configuration_is_served_after_sighup(cluster: KafkaCluster) -> None:
    """And one that is taken out has no port any more: its sessions end, those of others go on."""
    *ids, late = cluster.node_ids
    topic = fresh_name("late")
    cluster.create_topic(topic, leader=late)
    with SluiceProcess(cluster.bootstrap, ids) as sluice:
        without_port = "sluice_brokers_without_port"
        assert sluice.metrics().value(without_port, listener="PLAIN") == 1
        assert sluice.is_ready()
        before = sluice.config_path.read_text("utf-8")
        configuration = yaml.safe_load(before)
        port = free_ports(1)[0]
        configuration["listeners"][0]["brokers"][str(late)] = str(port)
        task = Produce(bootstrap=sluice.bootstrap, client_id="late", topic=topic, duration_s=90.0)
        with JAVA_3.run(task) as producer:
            wait_until(lambda: sluice.metrics().value("sluice_requests_total", api="Metadata") > 0, "the client", 60.0)
            sluice.config_path.write_text(yaml.safe_dump(configuration), "utf-8")
            sluice.signal(signal.SIGHUP)
            producer.wait_for(
                lambda client: any(event["records"] for event in client.of_kind("progress")), "records", 60.0
            )
            assert sluice.metrics().value(without_port, listener="PLAIN") == 0
            sluice.config_path.write_text(before, "utf-8")
            sluice.signal(signal.SIGHUP)
            wait_until(lambda: sluice.metrics().value(without_port, listener="PLAIN"), "the port closed", equals=1)
            assert not answers_api_versions(Address(LOOPBACK, port))
            assert all(answers_api_versions(sluice.broker_addresses[node_id]) for node_id in ids)
        drained = sluice.logged("draining sessions at closed ports")
        assert [line["sessions"] > 0 for line in drained] == [True]
