"""A proxy whose ZooKeeper fails in every way: the quotas read last stay in force, and it is read again afterwards.

What is printed is how long that took after the end of the fault (tests do not judge it: docs/quotas.md says it).
"""

import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.harness.gate import Gate
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.harness.zookeeper import Ensemble, ZooKeeper
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]

LIMIT = 100_000
REQUEST_BYTES = 20_000
TIMEOUT_S = 120.0
CONFIGURED, STALENESS = "sluice_quotas_configured", "sluice_quota_staleness_seconds"


class Scene:
    """A proxy that reads a ZooKeeper, a client under a quota, and who writes to ZooKeeper beside it."""

    def __init__(self, client: KazooClient, sluice: SluiceProcess, topic: str) -> None:
        self.client = client
        self.sluice = sluice
        (address,) = sluice.broker_addresses.values()
        self._shape = Shape(address, produce_request(topic, "app", REQUEST_BYTES))

    def assert_held(self) -> None:
        """The client is served, without an error, and throttled."""
        before = self._throttled()
        (load,) = run_loads([self._shape], 2.0)
        assert load.errors == []
        assert self._throttled() > before

    def value(self, name: str) -> float:
        return self.sluice.metrics().value(name)

    def write(self, path: str, **quotas: str) -> None:
        write(self.client, path, **quotas)

    def wait_recovered(self, what: str) -> None:
        """From now, which is the end of the fault: until it is read again, and a new quota is in force."""
        since_s = time.monotonic()
        wait_until(lambda: self.value(STALENESS), "it is read again", TIMEOUT_S, equals=0)
        print(f"{what}: read again after {time.monotonic() - since_s:.1f} s")
        wait_until(lambda: self.client.connected, "the test's own client is back", TIMEOUT_S)
        known = self.value(CONFIGURED)
        self.write(f"clients/{fresh_name('after')}", producer_byte_rate="1")
        wait_until(lambda: self.value(CONFIGURED), "another one in force", TIMEOUT_S, equals=known + 1)
        self.assert_held()

    def _throttled(self) -> float:
        return self.sluice.metrics().value("sluice_quota_throttled_responses_total", client_id="app")


class Behind(Scene):
    """With one server, behind a gate."""

    def __init__(
        self, zookeeper: ZooKeeper, gate: Gate, client: KazooClient, sluice: SluiceProcess, topic: str
    ) -> None:
        super().__init__(client, sluice, topic)
        self.zookeeper = zookeeper
        self.gate = gate


def _sessions(zookeeper: ZooKeeper, besides: KazooClient) -> set[str]:
    """Who has a session with the server."""
    lines = [line.strip() for line in zookeeper.said("dump").splitlines()]
    return {line for line in lines if line.startswith("0x")} - {hex(besides.client_id[0])}


def make_tree(client: KazooClient) -> None:
    """As a broker does when it starts."""
    for top in ("users", "clients", "ips", "changes"):
        client.ensure_path(f"/config/{top}")


def write(client: KazooClient, path: str, **quotas: str) -> None:
    """As a broker writes it."""
    client.ensure_path(f"/config/{path}")
    client.set(f"/config/{path}", json.dumps({"version": 1, "config": quotas}).encode())
    notify(client, path)


def notify(client: KazooClient, path: str) -> None:
    notification = json.dumps({"version": 2, "entity_path": path}).encode()
    client.create("/config/changes/config_change_", notification, sequence=True)


@contextmanager
def writer(connect: str) -> Iterator[KazooClient]:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    client = KazooClient(hosts=connect, timeout=5.0, connection_retry={"max_tries": -1})
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def proxy(cluster: KafkaCluster, connect: str, session_timeout: str) -> Iterator[SluiceProcess]:
    store = {"type": "zookeeper", "connect": connect, "session_timeout": session_timeout}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings={"quotas": {"store": store}}) as sluice:
        yield sluice


@pytest.fixture(params=["2s", "18s"])
def scene(old_cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[Behind]:
    topic = fresh_name("outage")
    old_cluster.create_topic(topic)
    with ZooKeeper(properties={"maxSessionTimeout": "40000"}) as zookeeper, writer(zookeeper.connect) as client:
        make_tree(client)
        write(client, "clients/app", producer_byte_rate=str(LIMIT))
        front = Address(LOOPBACK, free_port())
        with (
            Gate(front, Address.parse(zookeeper.connect)) as gate,
            proxy(old_cluster, str(front), request.param) as sluice,
        ):
            scene = Behind(zookeeper, gate, client, sluice, topic)
            scene.assert_held()
            yield scene


def assert_outlived(scene: Scene, fault: str) -> None:
    """Within a fault, until it is told of it: what was in force is."""
    wait_until(lambda: scene.value(STALENESS) > 0, f"{fault} is noticed", TIMEOUT_S)
    stale_s = scene.value(STALENESS)
    scene.assert_held()
    assert scene.value(STALENESS) > stale_s
    assert scene.value(CONFIGURED) == 1


def test_quotas_stay_in_force_while_zookeeper_is_killed(scene: Behind) -> None:
    scene.zookeeper.crash()
    assert_outlived(scene, "killed")
    scene.zookeeper.start()
    scene.wait_recovered("killed, from when it serves")
    failed = [event for event in scene.sluice.logs() if event["event"].startswith("quotas not loaded")]
    assert len(failed) <= 3, "said once for each reason, however often it is tried"


def test_quotas_stay_in_force_while_zookeeper_is_stopped(scene: Behind) -> None:
    assert scene.zookeeper.program is not None
    scene.zookeeper.program.signal(signal.SIGSTOP)
    assert_outlived(scene, "stopped")
    scene.zookeeper.program.signal(signal.SIGCONT)
    scene.wait_recovered("stopped")


def test_quotas_changed_during_expired_session_are_read_again(scene: Behind) -> None:
    """What was changed meanwhile, its notification deleted, is read with everything else."""
    scene.gate.block()
    assert_outlived(scene, "dropped")
    since_s = time.monotonic()
    wait_until(lambda: time.monotonic() - since_s > 20.0, "no session lives so long", TIMEOUT_S)
    scene.write("clients/meanwhile", producer_byte_rate="1")
    for name in scene.client.get_children("/config/changes"):
        scene.client.delete(f"/config/changes/{name}")
    assert scene.value(CONFIGURED) == 1
    scene.gate.open()
    scene.wait_recovered("packets dropped")
    assert scene.value(CONFIGURED) == 3


def test_quota_changed_during_short_packet_loss_is_in_force(scene: Behind) -> None:
    """Not long enough to be noticed: what was changed meanwhile comes through."""
    scene.gate.block()
    scene.write("clients/meanwhile", producer_byte_rate="1")
    scene.assert_held()
    scene.gate.open()
    wait_until(lambda: scene.value(CONFIGURED), "the change is in force", TIMEOUT_S, equals=2)
    scene.wait_recovered("packets dropped for a moment")


def test_quotas_stay_in_force_while_zookeeper_refuses_connections(scene: Behind) -> None:
    scene.gate.shut()
    assert_outlived(scene, "refused")
    scene.gate.open()
    scene.wait_recovered("refused")


def test_quotas_stay_in_force_while_zookeeper_flaps(scene: Behind) -> None:
    """Up and down every few hundred milliseconds, while quotas change."""
    ended = threading.Event()

    def flap() -> None:
        while not ended.wait(0.3):
            scene.gate.shut()
            ended.wait(0.3)
            scene.gate.open()

    thread = threading.Thread(target=flap, daemon=True)
    thread.start()
    for round_ in range(3):
        scene.assert_held()
        scene.write("clients/other", producer_byte_rate=str(round_ + 1))
    ended.set()
    thread.join()
    scene.gate.open()
    scene.wait_recovered("flapping")
    new = [event for event in scene.sluice.logs() if event.get("quota") == "client-id=other"]
    assert new[-1]["new"] == 3


def test_quotas_stay_in_force_when_a_node_becomes_unreadable(scene: Behind) -> None:
    """A node that may not be read any more keeps its quota, and all others theirs."""
    node = "/config/clients/app"
    scene.client.add_auth("digest", "broker:pw")
    scene.client.set_acls(node, [make_digest_acl("broker", "pw", all=True)])
    notify(scene.client, "clients/app")
    assert_outlived(scene, "denied")
    [*_, error] = scene.sluice.logged("quotas not loaded")
    assert "/config/clients/app: may not be read" in error["problem"]
    scene.client.set_acls(node, [*OPEN_ACL_UNSAFE])
    scene.wait_recovered("denied")


def test_quotas_stay_in_force_when_the_config_tree_is_deleted(scene: Behind) -> None:
    """Deleted by somebody, while a broker or an operator is there: not the same as no quotas."""
    scene.client.delete("/config", recursive=True)
    assert_outlived(scene, "the tree gone")
    make_tree(scene.client)
    write(scene.client, "clients/app", producer_byte_rate=str(LIMIT))
    scene.wait_recovered("the tree gone")


def test_proxy_resumed_after_session_expiry_reads_quotas_again(scene: Behind) -> None:
    scene.sluice.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: not _sessions(scene.zookeeper, besides=scene.client), "its session is gone", TIMEOUT_S)
        scene.write("clients/meanwhile", producer_byte_rate="1")
        for name in scene.client.get_children("/config/changes"):
            scene.client.delete(f"/config/changes/{name}")
    finally:
        scene.sluice.signal(signal.SIGCONT)
    wait_until(lambda: scene.value(CONFIGURED), "what was changed is in force", TIMEOUT_S, equals=2)
    scene.wait_recovered("the proxy stopped")


def test_quotas_stay_in_force_while_ensemble_restarts_server_by_server(old_cluster: KafkaCluster) -> None:
    """What is changed meanwhile is in force after each."""
    topic = fresh_name("outage")
    old_cluster.create_topic(topic)
    with Ensemble() as ensemble, writer(ensemble.connect) as client:
        make_tree(client)
        write(client, "clients/app", producer_byte_rate=str(LIMIT))
        with proxy(old_cluster, ensemble.connect, "6s") as sluice:
            scene = Scene(client, sluice, topic)
            for server in ensemble.servers:
                server.crash()
                scene.assert_held()
                server.launch()
                server.wait_serving()
                scene.wait_recovered("one of three restarted")


def test_a_server_without_a_quorum_serves_readers_alone(old_cluster: KafkaCluster) -> None:
    """As at a broker, that is no server: what it has may be old."""
    topic = fresh_name("outage")
    old_cluster.create_topic(topic)
    with Ensemble() as ensemble, writer(ensemble.connect) as client:
        make_tree(client)
        write(client, "clients/app", producer_byte_rate=str(LIMIT))
        last, *others = ensemble.servers
        with proxy(old_cluster, ensemble.connect, "6s") as sluice:
            scene = Scene(client, sluice, topic)
            scene.assert_held()
            for server in others:
                server.crash()
            assert_outlived(scene, "no quorum")
            wait_until(lambda: "Mode: read-only" in last.said(), "it serves readers", TIMEOUT_S)
            scene.assert_held()
            assert scene.value(STALENESS) > 0
            [*_, error] = sluice.logged("quotas not loaded")
            assert "has it a quorum?" in error["problem"]
            for server in others:
                server.launch()
            for server in others:
                server.wait_serving()
            scene.wait_recovered("no quorum, from when there is one")
