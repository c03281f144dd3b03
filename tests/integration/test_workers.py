"""Two workers in front of three brokers: quotas are exact for each broker, and a worker that is killed is back."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_3, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_WINDOW, SHORT_WINDOW_S, LogMeter
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, Connection, frame
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = pytest.mark.integration

RECORDS = 600
LIMIT_BYTES_PER_S = 500_000
WINDOWS = 6
LONGEST_S = 3 * SHORT_WINDOW_S * (1 + WINDOWS)
TOLERANCE = 0.06
QUOTAS = f"quotas:\n- {{entity: {{client-id: greedy}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n"
QUESTION = frame(API_VERSIONS, 0, 1, "asking", b"")


@pytest.fixture(scope="module")
def sluice(cluster: KafkaCluster) -> Iterator[SluiceProcess]:
    with started(cluster) as running:
        yield running


@contextmanager
def started(cluster: KafkaCluster) -> Iterator[SluiceProcess]:
    settings = {**SHORT_WINDOW, "workers": 2, "cluster": {"refresh": "1s"}}
    with SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=settings) as running:
        wait_until(lambda: set(placed(running)) == set(NODE_IDS), "all brokers are placed")
        yield running


def placed(sluice: SluiceProcess) -> dict[int, int]:
    """Return the worker of each broker."""
    brokers = json.loads(sluice.get("/api/v1/brokers")[1])["items"]
    return {each["node_id"]: each["worker"] for each in brokers if each["worker"] is not None}


def process_at(sluice: SluiceProcess, at: Address) -> psutil.Process:
    """Return the process that serves the clients of a port."""

    def serves(process: psutil.Process) -> bool:
        ends = process.net_connections("tcp")
        return any(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == at.port for each in ends)

    (found,) = filter(serves, psutil.Process(sluice.pid).children())
    return found


def ask(connection: Connection) -> bytes:
    connection.send(QUESTION)
    return connection.receive()


def test_each_broker_has_a_process_and_one_has_two(cluster: KafkaCluster) -> None:
    with started(cluster) as sluice:
        assert sorted(placed(sluice).values()) in ([0, 0, 1], [0, 1, 1])
        with ExitStack() as stack:
            for at in sluice.broker_addresses.values():
                assert ask(stack.enter_context(Connection(at)))
            processes = {node_id: process_at(sluice, at).pid for node_id, at in sluice.broker_addresses.items()}
            assert len(set(processes.values())) == 2
            assert len({(worker, processes[node_id]) for node_id, worker in placed(sluice).items()}) == 2
            assert sluice.metrics().value("sluice_sessions") == len(NODE_IDS)
        assert sluice.stop() == 0
        assert not [line for line in sluice.logs() if line["level"] in {"warning", "error"}]


@pytest.mark.parametrize("kind", [KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_3], ids=lambda kind: kind.name)
def test_clients_produce_and_consume_through_any_worker(
    cluster: KafkaCluster, sluice: SluiceProcess, kind: ClientKind
) -> None:
    """Also the coordinator of the group is at any worker."""
    topic = fresh_name("workers")
    cluster.create_topic(topic, partitions=3)
    task = Produce(bootstrap=sluice.bootstrap, client_id=kind.name, topic=topic, records=RECORDS)
    with kind.run(task) as producer:
        assert producer.result().records == RECORDS
    reading = Consume(bootstrap=sluice.bootstrap, client_id=kind.name, topic=topic, records=RECORDS, group=topic)
    with kind.run(reading) as consumer:
        consumed = consumer.result()
    assert (consumed.records, consumed.corrupt) == (RECORDS, 0)


def test_clients_get_their_quota_once_at_each_broker(cluster: KafkaCluster, sluice: SluiceProcess) -> None:
    """Two programs of one client-id at each of two brokers, which are at different workers."""
    workers = placed(sluice)
    leaders = list({worker: node_id for node_id, worker in workers.items()}.values())
    assert len(leaders) == 2
    with ExitStack() as stack:
        meters: dict[int, LogMeter] = {}
        clients = []
        for leader in leaders:
            topic = fresh_name("greedy")
            cluster.create_topic(topic, leader=leader)
            meters[leader] = stack.enter_context(LogMeter(cluster.log_folder(topic)))
            for kind in (AIOKAFKA, CONFLUENT):
                task = Produce(
                    bootstrap=sluice.bootstrap,
                    client_id="greedy",
                    topic=topic,
                    duration_s=LONGEST_S,
                    record_bytes=4_000,
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


@pytest.mark.timeout(300)
def test_a_worker_killed_under_load_is_back_and_nothing_is_lost(cluster: KafkaCluster, sluice: SluiceProcess) -> None:
    """Sessions at brokers of the other worker are not even noticed to be there."""
    workers = placed(sluice)
    killed = NODE_IDS[0]
    spared = next(node_id for node_id, worker in workers.items() if worker != workers[killed])
    with ExitStack() as stack:
        producers = {}
        for kind, leader in ((AIOKAFKA, killed), (CONFLUENT, killed), (KAFKA_PYTHON, spared)):
            topic = fresh_name("killed")
            cluster.create_topic(topic, leader=leader)
            task = Produce(
                bootstrap=sluice.bootstrap,
                client_id=kind.name,
                topic=topic,
                duration_s=120.0,
                record_bytes=500,
                rate_bytes_per_s=50_000,
                acks=-1,
                idempotent=True,
            )
            producers[kind, topic] = stack.enter_context(kind.run(task))
        other = stack.enter_context(Connection(sluice.broker_addresses[spared]))
        probe = stack.enter_context(Connection(sluice.broker_addresses[killed]))
        for each in (other, probe):
            assert ask(each)
        time.sleep(3.0)
        for number in range(2):
            process_at(sluice, sluice.broker_addresses[killed]).send_signal(signal.SIGKILL)
            with Connection(sluice.broker_addresses[killed], timeout_s=30.0) as waiting:
                assert ask(waiting)
                assert ask(other)
                time.sleep(3.0)
            restarts = sluice.metrics().value("sluice_worker_restarts_total", worker=str(workers[killed]))
            assert restarts == number + 1
        assert sluice.metrics().value("sluice_worker_restarts_total", worker=str(workers[spared])) == 0
        for producer in producers.values():
            producer.ask_to_stop()
        produced = {key: producer.result(timeout_s=90) for key, producer in producers.items()}
    for (kind, topic), sent in produced.items():
        assert (kind.name, sent.errors, sent.records > 300) == (kind.name, (), True)
        reading = Consume(
            bootstrap=cluster.bootstrap, client_id="reader", topic=topic, records=sent.records, duration_s=30.0
        )
        with CONFLUENT.run(reading) as consumer:
            found = consumer.result()
        assert (kind.name, found.records, found.corrupt) == (kind.name, sent.records, 0)


def test_workers_of_elected_owners_end_with_their_supervisor(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Two instances with two workers each: one is killed, the other owns all brokers, and nobody else serves."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of all instances")
    owners = {"group": fresh_name("owners"), "secret_file": str(secret), "heartbeat": "500ms"}
    with ExitStack() as stack:
        instances = {}
        for name in ("edge-1", "edge-2"):
            settings = {"workers": 2, "owners": {"instance": name, **owners}}
            instances[name] = stack.enter_context(SluiceProcess(cluster.bootstrap, NODE_IDS, settings=settings))

        def owned(name: str) -> dict[int, tuple[str, int | None]]:
            said = json.loads(instances[name].get("/api/v1/brokers")[1])["items"]
            return {each["node_id"]: (each["owner"], each["worker"]) for each in said}

        def is_shared() -> bool:
            found = [{(node_id, owner) for node_id, (owner, _) in owned(name).items()} for name in instances]
            return found[0] == found[1] and {owner for _, owner in found[0]} == set(instances)

        wait_until(is_shared, "both own brokers", 40.0)
        for name in instances:
            assert all((worker is None) is (owner != name) for owner, worker in owned(name).values())
        workers = psutil.Process(instances["edge-1"].pid).children()
        os.kill(instances["edge-1"].pid, signal.SIGKILL)  # not its workers, as the signals of the harness would
        _, left = psutil.wait_procs(workers, timeout=30.0)
        assert left == []
        wait_until(lambda: {owner for owner, _ in owned("edge-2").values()}, "the other owns all", equals={"edge-2"})
        wait_until(lambda: {worker for _, worker in owned("edge-2").values()}, "both workers have some", equals={0, 1})
        for at in instances["edge-2"].broker_addresses.values():
            with Connection(at) as connection:
                assert ask(connection)


def test_supervisor_that_hangs_leaves_no_second_owner(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Its workers fence themselves before the others own its brokers, and own some again when it goes on."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of all instances")
    owners = {"group": fresh_name("owners"), "secret_file": str(secret)}
    with ExitStack() as stack:
        instances = {}
        for name in ("edge-1", "edge-2"):
            settings = {"workers": 2, "owners": {"instance": name, **owners}}
            instances[name] = stack.enter_context(SluiceProcess(cluster.bootstrap, NODE_IDS, settings=settings))
        hanging, other = instances["edge-1"], instances["edge-2"]

        def owned(sluice: SluiceProcess) -> set[int]:
            said = json.loads(sluice.get("/api/v1/owners")[1])
            return {int(node_id) for node_id, owner in said["owners"].items() if owner == said["instance"]}

        def answers(connection: Connection) -> bool:
            try:
                return bool(ask(connection))
            except OSError:
                return False

        wait_until(lambda: all(map(owned, instances.values())), "both own brokers", 40.0)
        before = owned(hanging)
        with ExitStack() as connections:
            served = {
                node_id: connections.enter_context(Connection(hanging.broker_addresses[node_id])) for node_id in before
            }
            assert all(map(answers, served.values()))
            os.kill(hanging.pid, signal.SIGSTOP)  # not its workers, as the signals of the harness would
            stack.callback(os.kill, hanging.pid, signal.SIGCONT)
            wait_until(lambda: before <= owned(other), "the other owns all", 30.0)
            assert not any(map(answers, served.values()))
        os.kill(hanging.pid, signal.SIGCONT)
        wait_until(lambda: bool(owned(hanging)) and not owned(hanging) & owned(other), "it owns brokers again", 90.0)
        for node_id in owned(hanging):
            with Connection(hanging.broker_addresses[node_id], timeout_s=30.0) as connection:
                assert ask(connection)
