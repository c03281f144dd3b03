"""Two workers, three brokers, and one TLS port: the host that a client names is the broker, whoever accepts."""

import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.harness.certificates import Authority, common_name
from tests.harness.clients.kinds import AIOKAFKA, JAVA_3, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce, Security
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_WINDOW, SHORT_WINDOW_S, LogMeter
from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, frame
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = pytest.mark.integration

ZONE = "sluice.test"
BALANCER = "127.0.0.9"
RECORDS = 600
LIMIT_BYTES_PER_S = 500_000
WINDOWS = 6
LONGEST_S = 3 * SHORT_WINDOW_S * (1 + WINDOWS)
TOLERANCE = 0.06
QUOTAS = f"quotas:\n- {{entity: {{client-id: greedy}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n"
QUESTION = frame(API_VERSIONS, 0, 1, "asking", b"")
TIMEOUT_S = 30.0
HEADERS = {
    "v1": b"PROXY TCP4 192.0.2.7 198.51.100.1 %d 9092\r\n",
    "v2": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\2\7\xc6\x33\x64\1%b\x23\x84",
}
RESOLVER = f"""\
import socket
resolve = socket.getaddrinfo
def of_the_test(host, *rest, **options):
    return resolve({LOOPBACK!r} if str(host).endswith(".{ZONE}") else host, *rest, **options)
socket.getaddrinfo = of_the_test
"""
"""As /etc/hosts, for clients in Python."""


@dataclass
class Shared:
    sluice: SluiceProcess
    authority: Authority
    placed: dict[int, int]
    """Node id → worker."""

    @property
    def bootstrap(self) -> str:
        return f"kafka.{ZONE}:{self.sluice.listeners['NAMES'].address.port}"

    def port(self, listener: str = "NAMES") -> int:
        return self.sluice.listeners[listener].address.port

    def security(self) -> Security:
        return Security(protocol="SSL", ca=str(self.authority.certificate))

    def connect(
        self,
        host: str,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        listener: str = "NAMES",
        header: bytes = b"",
    ) -> ssl.SSLSocket:
        """Connect to a host, behind a load balancer that sends a header."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.minimum_version = context.maximum_version = version
        source = (BALANCER, 0) if header else None
        plain = socket.create_connection((LOOPBACK, self.port(listener)), TIMEOUT_S, source_address=source)
        plain.sendall(header)
        return context.wrap_socket(plain, server_hostname=host)

    def process_of(self, client: ssl.SSLSocket) -> int:
        """Return the process that serves a client."""
        here = client.getsockname()[1]

        def serves(process: psutil.Process) -> bool:
            ends = process.net_connections("tcp")
            return any(bool(each.raddr) and each.raddr.port == here for each in ends)

        (found,) = filter(serves, psutil.Process(self.sluice.pid).children())
        return found.pid


@pytest.fixture(scope="module")
def shared(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    authority = Authority(tmp_path_factory.mktemp("shared"))
    hosts = [f"kafka.{ZONE}", *(f"b{node_id}.{ZONE}" for node_id in NODE_IDS)]
    server = authority.issue("sluice", common_name("sluice"), hosts)
    names = {
        "advertise": f"kafka.{ZONE}",
        "broker_host": f"b{{node_id}}.{ZONE}",
        "tls": {"certificate": str(server.certificate), "key": str(server.key)},
    }
    listeners = {"NAMES": names, "BALANCED": {**names, "proxy_protocol": {"networks": [f"{BALANCER}/32"]}}}
    limits = {"authentication_timeout": "10s"}
    settings = {**SHORT_WINDOW, "workers": 2, "cluster": {"refresh": "1s"}, "limits": limits}
    with SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=settings, listeners=listeners) as sluice:

        def placed() -> dict[int, int]:
            brokers = json.loads(sluice.get("/api/v1/brokers")[1])["items"]
            return {each["node_id"]: each["worker"] for each in brokers if each["worker"] is not None}

        wait_until(lambda: set(placed()) == set(NODE_IDS), "all brokers are placed")
        yield Shared(sluice, authority, placed())


@pytest.fixture
def resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients find the hosts."""
    hosts = tmp_path / "hosts"
    names = [f"kafka.{ZONE}", *(f"b{node_id}.{ZONE}" for node_id in NODE_IDS), "localhost"]
    hosts.write_text("".join(f"{LOOPBACK} {name}\n" for name in names), encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(RESOLVER, encoding="utf-8")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djdk.net.hosts.file={hosts}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def ask(client: ssl.SSLSocket) -> bytes:
    client.sendall(QUESTION)
    return client.recv(65536)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_each_host_has_one_process_whoever_accepts(shared: Shared, version: ssl.TLSVersion) -> None:
    processes: dict[int, set[int]] = {worker: set() for worker in shared.placed.values()}
    for _ in range(8):
        for node_id, worker in shared.placed.items():
            with shared.connect(f"b{node_id}.{ZONE}", version) as client:
                assert ask(client)
                processes[worker].add(shared.process_of(client))
    assert [len(found) for found in processes.values()] == [1, 1]
    assert len(set.union(*processes.values())) == 2


@pytest.mark.usefixtures("resolved")
@pytest.mark.parametrize("kind", [KAFKA_PYTHON, AIOKAFKA, JAVA_3], ids=lambda kind: kind.name)
def test_clients_produce_and_consume_through_the_shared_port(
    cluster: KafkaCluster, shared: Shared, kind: ClientKind
) -> None:
    topic = fresh_name("shared")
    cluster.create_topic(topic, partitions=3)
    common = {"bootstrap": shared.bootstrap, "client_id": kind.name, "topic": topic, "security": shared.security()}
    with kind.run(Produce(**common, records=RECORDS)) as producer:  # type: ignore[arg-type]  # by name
        assert producer.result().records == RECORDS
    with kind.run(Consume(**common, records=RECORDS, group=topic)) as consumer:  # type: ignore[arg-type]
        consumed = consumer.result()
        said = f"{consumer.stderr()}\n{shared.sluice.log_tail()}"
    assert (consumed.records, consumed.corrupt) == (RECORDS, 0), said


@pytest.mark.slow  # as behind ports of their own: test_workers.py
@pytest.mark.alone
@pytest.mark.usefixtures("resolved")
def test_clients_get_their_quota_once_at_each_broker(cluster: KafkaCluster, shared: Shared) -> None:
    """Two programs of one client-id at each of two brokers, which are at different workers."""
    leaders = list({worker: node_id for node_id, worker in shared.placed.items()}.values())
    assert len(leaders) == 2
    with ExitStack() as stack:
        meters: dict[int, LogMeter] = {}
        clients = []
        for leader in leaders:
            topic = fresh_name("greedy")
            cluster.create_topic(topic, leader=leader)
            meters[leader] = stack.enter_context(LogMeter(cluster.log_folder(topic)))
            for kind in (AIOKAFKA, JAVA_3):
                task = Produce(
                    bootstrap=shared.bootstrap,
                    client_id="greedy",
                    topic=topic,
                    duration_s=LONGEST_S,
                    record_bytes=4_000,
                    security=shared.security(),
                )
                clients.append(stack.enter_context(kind.run(task)))
        for meter in meters.values():
            clients[0].wait_for(partial(_is_measured, meter), "its rate was measured", LONGEST_S)
        for client in clients:
            client.ask_to_stop()
        rates = {leader: meter.series.steady_rate(WINDOWS, SHORT_WINDOW_S) for leader, meter in meters.items()}
        assert rates == pytest.approx(dict.fromkeys(leaders, LIMIT_BYTES_PER_S), rel=TOLERANCE)


def _is_measured(meter: LogMeter, client: ClientProcess) -> bool:
    return meter.series.has_steady_rate(WINDOWS, SHORT_WINDOW_S)


@pytest.mark.parametrize("kind", HEADERS)
def test_a_load_balancers_clients_keep_their_addresses(shared: Shared, kind: str) -> None:
    for number, node_id in enumerate(NODE_IDS * 4, 40_000):
        header = HEADERS[kind] % (number if kind == "v1" else number.to_bytes(2, "big"))
        with shared.connect(f"b{node_id}.{ZONE}", listener="BALANCED", header=header) as client:
            assert ask(client)
            peer = f"192.0.2.7:{number}"
            (item,) = json.loads(shared.sluice.get(f"/api/v1/connections?peer={peer}")[1])["items"]
            assert (item["listener"], item["peer"]) == ("BALANCED", peer)


def test_a_host_that_is_not_served_is_refused_with_an_alert(shared: Shared) -> None:
    before = shared.sluice.metrics().value("sluice_frames_rejected_total", cause="unknown_sni")
    for host in ("b7.sluice.test", "elsewhere.test"):
        with pytest.raises(ssl.SSLError) as refused:
            shared.connect(host)
        assert refused.value.reason == "TLSV1_UNRECOGNIZED_NAME"
    assert shared.sluice.metrics().value("sluice_frames_rejected_total", cause="unknown_sni") == before + 2


def test_half_hellos_cost_no_one_anything_and_end_at_the_deadline(shared: Shared) -> None:
    def sessions() -> float:
        return shared.sluice.metrics().value("sluice_sessions", listener="NAMES")

    def late() -> float:
        return shared.sluice.metrics().value("sluice_frames_rejected_total", cause="authentication_timeout")

    wait_until(sessions, "earlier sessions ended", equals=0)
    before = late()
    with ExitStack() as stack:
        halves = []
        for _ in range(200):
            half = stack.enter_context(socket.create_connection((LOOPBACK, shared.port()), TIMEOUT_S))
            half.sendall(b"\x16\x03\x01\2\0\1")
            halves.append(half)
        for node_id in NODE_IDS:
            with shared.connect(f"b{node_id}.{ZONE}") as client:
                for each in halves[:20]:
                    each.sendall(b"\0")
                assert ask(client)
        for half in halves:
            with suppress(ConnectionError):
                assert half.recv(1) == b""
    wait_until(sessions, "all ended", equals=0)
    assert late() == before + len(halves)


def test_while_a_worker_is_killed_its_clients_wait_and_others_are_served(shared: Shared) -> None:
    killed, spared = ({worker: node_id for node_id, worker in shared.placed.items()}[worker] for worker in (0, 1))
    with shared.connect(f"b{spared}.{ZONE}") as other, shared.connect(f"b{killed}.{ZONE}") as client:
        assert ask(client)
        psutil.Process(shared.process_of(client)).send_signal(signal.SIGKILL)
        for _ in range(4):
            with suppress(ConnectionError, ssl.SSLEOFError), shared.connect(f"b{killed}.{ZONE}") as waiting:
                assert ask(waiting)
                break
        else:
            pytest.fail("nobody was served")
        assert ask(other)
        with shared.connect(f"b{spared}.{ZONE}") as another:
            assert ask(another)
