"""HAProxy in front, with the PROXY protocol to the proxy: clients keep their addresses, health checks make no noise."""

import json
import shutil
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.harness.certificates import Authority, common_name
from tests.harness.clients.kinds import CONFLUENT, KAFKA_PYTHON, ClientKind
from tests.harness.clients.tasks import Consume, Produce, Security
from tests.harness.kafka import KafkaCluster
from tests.harness.process import Program
from tests.harness.sluice import ListenerAddresses, SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, Connection, answers_api_versions, frame
from tests.integration.conftest import fresh_name
from tests.integration.operations import Whom

pytestmark = pytest.mark.integration

FRONT = "127.0.0.3"
"""Where HAProxy listens, on the proxy's own ports: it is what clients are told."""
BALANCER = "127.0.0.9"
"""Where HAProxy connects from: the one address that may say whom it forwards, and has to."""
RECORDS = 500
STARTED_S = 10.0
HEAD = """\
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
"""
LISTEN = """\
listen {name}_{port}
    bind {front}:{port}
    server sluice {host}:{port} source {balancer} {send} check inter 100ms
"""
SENDS = {"V1": "send-proxy", "V2": "send-proxy-v2", "TLS_V1": "send-proxy", "TLS_V2": "send-proxy-v2"}


@dataclass(frozen=True, slots=True)
class Balanced:
    sluice: SluiceProcess
    authority: Authority

    def security(self, name: str) -> Security:
        return Security(protocol="SSL", ca=str(self.authority.certificate)) if name.startswith("TLS") else Security()

    def front(self, name: str) -> Address:
        return Address(FRONT, self.sluice.listeners[name].address.port)

    def connect(self, name: str) -> Connection:
        return Connection(self.front(name), tls=self._context() if name.startswith("TLS") else None)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))


@pytest.fixture(scope="module")
def balanced(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    """A listener for each version of the protocol, without and with TLS behind the header."""
    folder = tmp_path_factory.mktemp("haproxy")
    authority = Authority(folder / "certificates")
    server = authority.issue("sluice", common_name("sluice"), [FRONT])
    tls = {"tls": {"certificate": str(server.certificate), "key": str(server.key)}}
    common = {"advertise": FRONT, "proxy_protocol": {"networks": [f"{BALANCER}/32"]}}
    listeners = {name: {**common, **(tls if name.startswith("TLS") else {})} for name in SENDS}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, listeners=listeners) as sluice:
        config = folder / "haproxy.cfg"
        config.write_text(HEAD + "".join(_listen(name, at) for name, at in sluice.listeners.items()), encoding="utf-8")
        haproxy = Program("haproxy", [_haproxy(), "-db", "-f", str(config)], folder / "haproxy.log")
        try:
            front = Address(FRONT, sluice.listeners["V2"].address.port)
            haproxy.wait_until(lambda: answers_api_versions(front), "answer", STARTED_S)
            yield Balanced(sluice, authority)
        finally:
            haproxy.stop()


def _listen(name: str, at: ListenerAddresses) -> str:
    addresses = [at.address, *at.brokers.values()]
    common = {"name": name, "front": FRONT, "balancer": BALANCER, "send": SENDS[name]}
    return "".join(LISTEN.format(**common, host=each.host, port=each.port) for each in addresses)


def _haproxy() -> str:
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    assert found is not None, "haproxy is missing: type make setup"
    return found


@pytest.mark.parametrize("name", SENDS)
def test_address_is_that_of_the_client(balanced: Balanced, name: str) -> None:
    with balanced.connect(name) as connection:
        connection.exchange(frame(API_VERSIONS, 0, 1, "by hand", b""))
        peer = "{}:{}".format(*connection._socket.getsockname())
        status, text = balanced.sluice.get(f"/api/v1/connections?peer={peer}")
        assert status == 200, text
        assert [each["listener"] for each in json.loads(text)["items"]] == [name]


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize("kind", [KAFKA_PYTHON, CONFLUENT], ids=lambda kind: kind.name)
def test_client_works_through_both(balanced: Balanced, cluster: KafkaCluster, name: str, kind: ClientKind) -> None:
    topic = fresh_name("balanced")
    cluster.create_topic(topic, leader=cluster.node_ids[-1])
    whom = Whom(bootstrap=str(balanced.front(name)), client_id="balanced", topic=topic)
    security = balanced.security(name)
    with kind.run(Produce(**whom, security=security, records=RECORDS)) as producer:
        produced = producer.result()
    with kind.run(Consume(**whom, security=security, records=RECORDS)) as consumer:
        consumed = consumer.result()
    assert (produced.records, consumed.records, consumed.corrupt) == (RECORDS, RECORDS, 0)


def test_without_a_load_balancer_clients_are_served_directly_and_may_not_send_a_header(balanced: Balanced) -> None:
    at = balanced.sluice.listeners["V2"].address
    assert answers_api_versions(at)
    with Connection(at) as connection:
        connection.send(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + frame(API_VERSIONS, 0, 1, "by hand", b""))
        assert connection.is_closed_by_peer()
    rejected = balanced.sluice.metrics().value("sluice_frames_rejected_total", cause="proxy_protocol_not_allowed")
    assert rejected == 1


def test_health_checks_leave_no_trace(balanced: Balanced) -> None:
    """HAProxy has looked at every port ten times a second since it was started."""
    assert balanced.sluice.metrics().value("sluice_connections_total", outcome="accepted") > 100
    complaints = [line for line in balanced.sluice.logs() if line["level"] in ("warning", "error")]
    assert [line for line in complaints if line.get("peer", "").startswith(f"{BALANCER}:")] == []
