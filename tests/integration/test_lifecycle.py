"""What happens at the ends: the proxy is stopped, a broker goes down and comes back, Prometheus comes by."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.clients.kinds import JAVA_3
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, fetch_request, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.secure import NODE_IDS, SASL, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Connection, answers_api_versions, frame
from tests.integration.conftest import fresh_name

pytestmark = pytest.mark.integration

NODE_ID, OTHER_ID = 1, 5
API_VERSIONS_REQUEST = frame(API_VERSIONS, 0, 7, "lifecycle", b"")
QUOTAS = "quotas:\n  - {entity: {client-id: metered}, producer_byte_rate: 1MB, consumer_byte_rate: 1MB}\n"


@pytest.fixture(scope="module")
def cluster(own_cluster: KafkaCluster) -> KafkaCluster:
    return own_cluster


@pytest.fixture(scope="module")
def topic(cluster: KafkaCluster) -> str:
    name = fresh_name("lifecycle")
    cluster.create_topic(name, leader=NODE_ID)
    return name


@pytest.fixture
def sluice(cluster: KafkaCluster) -> Iterator[SluiceProcess]:
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=QUOTAS) as running:
        yield running


def test_sigterm_answers_what_is_in_flight_and_exits_0(sluice: SluiceProcess, topic: str) -> None:
    """A Fetch of an empty topic waits at the broker; its answer still comes, and then the end of the connection."""
    with Connection(sluice.broker_addresses[NODE_ID]) as busy, Connection(sluice.address) as idle:
        idle.exchange(API_VERSIONS_REQUEST)
        busy.send(fetch_request(topic, "draining", 1000))
        wait_until(lambda: _requests(sluice, "Fetch"), "the fetch on its way", equals=1)
        sluice.signal(signal.SIGTERM)
        assert busy.receive()
        assert busy.is_closed_by_peer()
        assert idle.is_closed_by_peer()
    assert sluice.wait() == 0
    assert not answers_api_versions(sluice.address)
    assert sluice.logs()[-1]["event"] == "stopped"


def test_second_sigterm_does_not_wait(cluster: KafkaCluster, topic: str) -> None:
    """The drain would last a minute; the answer that it waits for never comes, because the broker is stopped."""
    settings = {"drain": {"timeout": "60s"}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings=settings) as sluice:
        broker = cluster.brokers[NODE_ID]
        with Connection(sluice.broker_addresses[NODE_ID]) as busy:
            busy.exchange(API_VERSIONS_REQUEST)
            broker.signal(signal.SIGSTOP)
            try:
                busy.send(API_VERSIONS_REQUEST)
                wait_until(lambda: _requests(sluice, "ApiVersions"), "the second request on its way", equals=2)
                sluice.signal(signal.SIGTERM)
                wait_until(lambda: sluice.get("/readyz")[0] != 200, "not ready any more")
                assert sluice.is_running
                assert sluice.stop(timeout_s=30.0) == 1  # which says that something was cut off
            finally:
                broker.signal(signal.SIGCONT)


def test_broker_down_closes_its_own_sessions_only(cluster: KafkaCluster, sluice: SluiceProcess) -> None:
    own, other = sluice.broker_addresses[NODE_ID], sluice.broker_addresses[OTHER_ID]
    with Connection(own) as lost, Connection(other) as kept:
        lost.exchange(API_VERSIONS_REQUEST)
        kept.exchange(API_VERSIONS_REQUEST)
        cluster.stop_broker(NODE_ID, crash=True)
        try:
            assert lost.is_closed_by_peer()
            assert kept.exchange(API_VERSIONS_REQUEST)
            for _ in range(3):
                assert not answers_api_versions(own)
            assert sluice.metrics().value("sluice_broker_reachable", broker=str(NODE_ID)) == 0
            assert kept.exchange(API_VERSIONS_REQUEST)
        finally:
            cluster.start_broker(NODE_ID)
        assert sluice.metrics().value("sluice_broker_reachable", broker=str(OTHER_ID)) == 1
        wait_until(lambda: _reachable(sluice), "the broker found again, though nobody connects", timeout_s=60.0)
        assert answers_api_versions(own)
        assert kept.exchange(API_VERSIONS_REQUEST)
    assert sluice.metrics().value("sluice_broker_reachable", broker=str(NODE_ID)) == 1
    assert sluice.logged("broker unreachable")
    complaints = [event for event in sluice.logs() if event["level"] == "error" and event.get("broker") == NODE_ID]
    assert len(complaints) == 1


def test_promtool_finds_nothing_to_say(sluice: SluiceProcess, topic: str) -> None:
    address = sluice.broker_addresses[NODE_ID]
    loads = run_loads(
        [
            Shape(address, produce_request(topic, "metered", 400_000)),
            Shape(address, fetch_request(topic, "metered", 1000)),
        ],
        duration_s=1.5,
    )
    assert [load.errors for load in loads] == [[], []]
    text = sluice.metrics().text
    assert 'client_id="metered"' in text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_producer_goes_on_after_a_restart_of_a_proxy_that_has_no_login(
    secure_cluster: SecureCluster, tmp_path: Path
) -> None:
    """Java 3.9.2 comes back to the brokers' ports alone, and never to its bootstrap servers."""
    topic = fresh_name("restarted")
    secure_cluster.cluster.create_topic(topic)
    route = secure_cluster.cluster.bootstrap_of(SASL)
    state = tmp_path / "state" / "brokers.json"
    sluice = SluiceProcess(
        route,
        NODE_IDS,
        settings={"cluster": {"state": str(state)}},
        plain={"authentication": "sasl"},
    )
    security = secure_cluster.by_password("SCRAM-SHA-512", "alice")
    task = Produce(
        bootstrap=sluice.bootstrap,
        client_id="restarted",
        topic=topic,
        security=security,
        duration_s=120.0,
        rate_bytes_per_s=20_000,
        idempotent=True,
    )
    with JAVA_3.run(task) as producer:
        with sluice:
            producer.wait_for(lambda client: _records(client) > 0, "records before")
            wait_until(state.exists, "the state file")
            assert sluice.stop() == 0
        before = _records(producer)
        with sluice:
            producer.wait_for(lambda client: _records(client) > before + 20, "records after", 30.0)
            assert sluice.metrics().value("sluice_state_file_operations_total", outcome="loaded") == 1
        producer.ask_to_stop()


def _records(client: ClientProcess) -> int:
    return max((int(event["records"]) for event in client.of_kind("progress")), default=0)


def _reachable(sluice: SluiceProcess) -> bool:
    return sluice.metrics().value("sluice_broker_reachable", broker=str(NODE_ID)) == 1


def _requests(sluice: SluiceProcess, api: str) -> float:
    return sluice.metrics().value("sluice_requests_total", api=api)
