"""A limit of the whole cluster (`scope: cluster`), at one process and divided between instances."""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import MEASURED_S, SHORT_WINDOW, SHORT_WINDOW_S, LogMeter
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LIMIT_BYTES_PER_S = 500_000
QUOTAS = f"quotas:\n- {{entity: {{client-id: greedy}}, producer_byte_rate: {LIMIT_BYTES_PER_S}, scope: cluster}}\n"
WINDOWS = 6
TOLERANCE = 0.08
NAMES = ("edge-1", "edge-2")


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
def alone(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[SluiceProcess]:
    """One instance with one worker, or two."""
    settings = {**SHORT_WINDOW, "workers": request.param}
    with SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=settings) as running:
        yield running


@pytest.fixture
def instances(cluster: KafkaCluster, tmp_path: Path) -> Iterator[list[SluiceProcess]]:
    """Two instances that have elected owners, each of which owns a broker at least."""
    with ExitStack() as stack:
        yield start(cluster, stack, tmp_path, SHORT_WINDOW)


def start(cluster: KafkaCluster, stack: ExitStack, folder: Path, settings: Mapping[str, object]) -> list[SluiceProcess]:
    secret, group = folder / "secret", fresh_name("owners")
    secret.write_text("a secret of both instances")
    running = []
    for name in NAMES:
        owners = {"instance": name, "group": group, "secret_file": str(secret), "heartbeat": "500ms"}
        instance = SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings={**settings, "owners": owners})
        stack.callback(instance.close)
        instance.launch()
        running.append(instance)
    wait_until(lambda: all(set(owners_of(each).values()) == set(NAMES) for each in running), "both own brokers", 40.0)
    return running


def owners_of(instance: SluiceProcess) -> dict[int, str]:
    status, text = instance.get("/api/v1/owners")
    found = json.loads(text)["owners"] if status == 200 else {}
    return {int(node_id): owner for node_id, owner in found.items()}


class Greedy:
    """Producers of one client-id at several brokers, and what comes of them in all."""

    def __init__(
        self, cluster: KafkaCluster, stack: ExitStack, bootstrap: str, leaders: list[int], last_s: float
    ) -> None:
        topics = {leader: fresh_name("greedy") for leader in dict.fromkeys(leaders)}
        for leader, topic in topics.items():
            cluster.create_topic(topic, leader=leader)
        self.meter = stack.enter_context(LogMeter(*map(cluster.log_folder, topics.values())))
        self.clients: list[ClientProcess] = []
        for number, leader in enumerate(leaders):
            task = Produce(
                bootstrap=bootstrap, client_id="greedy", topic=topics[leader], duration_s=last_s, record_bytes=4_000
            )
            kind = (CONFLUENT, AIOKAFKA)[number % 2]
            self.clients.append(stack.enter_context(kind.run(task)))

    def rate(self, windows: int, window_s: float) -> float:
        """Return the steady rate of all together, as a part of the limit."""
        last_s = (windows + 4) * window_s + 30
        self.clients[0].wait_for(lambda _: self.meter.series.has_steady_rate(windows, window_s), "measured", last_s)
        for client in self.clients:
            client.ask_to_stop()
        return self.meter.series.steady_rate(windows, window_s) / LIMIT_BYTES_PER_S

    def best_ten_seconds(self, from_s: float, to_s: float) -> float:
        """Return the highest rate of ten seconds between two moments, as a part of the limit."""
        begins = (from_s + second for second in range(int(to_s - from_s) - 9))
        return max(self.meter.series.rate(begin_s, begin_s + 10) for begin_s in begins) / LIMIT_BYTES_PER_S


def test_one_instance_counts_all_brokers_together(cluster: KafkaCluster, alone: SluiceProcess) -> None:
    with ExitStack() as stack:
        greedy = Greedy(cluster, stack, alone.bootstrap, list(NODE_IDS), 60)
        assert greedy.rate(WINDOWS, SHORT_WINDOW_S) == pytest.approx(1, abs=TOLERANCE)
    limits = alone.metrics().samples("sluice_quota_limit_bytes_per_second", client_id="greedy")
    assert {each.labels["broker"]: each.value for each in limits} == {"all": LIMIT_BYTES_PER_S}


@pytest.mark.parametrize("everywhere", [True, pytest.param(False, marks=[pytest.mark.slow, pytest.mark.alone])])
def test_cluster_wide_limit_is_divided_between_instances(
    cluster: KafkaCluster, instances: list[SluiceProcess], everywhere: bool
) -> None:
    owners = owners_of(instances[0])
    leaders = [next(node_id for node_id, owner in owners.items() if owner == name) for name in NAMES]
    with ExitStack() as stack:
        greedy = Greedy(cluster, stack, instances[0].bootstrap, leaders if everywhere else leaders[:1], 60)
        assert greedy.rate(WINDOWS, SHORT_WINDOW_S) == pytest.approx(1, abs=TOLERANCE)
    for each in instances:
        assert each.metrics().value("sluice_owners_unheard_instances") == 0


@pytest.mark.matrix
@pytest.mark.alone
@pytest.mark.parametrize("connections", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("workers", [1, 2])
def test_cluster_wide_limit_holds_for_instances_with_workers(
    cluster: KafkaCluster, tmp_path: Path, connections: int, workers: int
) -> None:
    """Connections anywhere, in Kafka's own window: the marks of docs/quotas.md."""
    windows = 6
    with ExitStack() as stack:
        instances = start(cluster, stack, tmp_path, {} if workers == 1 else {"workers": workers})
        leaders = [NODE_IDS[number % len(NODE_IDS)] for number in range(connections)]
        greedy = Greedy(cluster, stack, instances[0].bootstrap, leaders, MEASURED_S * 3)
        rate = greedy.rate(windows, MEASURED_S / 4)
        best = greedy.best_ten_seconds(*greedy.meter.series.steady_span_s(windows, MEASURED_S / 4))
        print(f"{connections} connections, {workers} workers: {rate:.3f} of the limit, best ten seconds {best:.3f}")
        assert rate == pytest.approx(1, abs=0.05)
        assert best <= 1.25


@pytest.mark.matrix
@pytest.mark.alone
@pytest.mark.parametrize("connections", [2, 5])
def test_cluster_wide_limit_holds_when_an_instance_is_killed(
    cluster: KafkaCluster, tmp_path: Path, connections: int
) -> None:
    """Over the minute after it, and in any ten seconds around it: the marks of docs/quotas.md."""
    with ExitStack() as stack:
        instances = start(cluster, stack, tmp_path, {})
        leaders = [NODE_IDS[number % len(NODE_IDS)] for number in range(connections)]
        greedy = Greedy(cluster, stack, instances[0].bootstrap, leaders, 150)
        wait_until(lambda: greedy.meter.series.has_steady_rate(2), "two windows", 60.0)
        instances[1].signal(signal.SIGKILL)
        killed_s = time.monotonic()
        wait_until(lambda: greedy.meter.series.end_s() > killed_s + 70, "a minute after it", 90.0)
        after = greedy.meter.series.rate_by_bursts(killed_s, killed_s + 70) / LIMIT_BYTES_PER_S
        best = greedy.best_ten_seconds(killed_s - 10, killed_s + 30)
        print(f"{connections} connections: {after:.3f} of the limit after it, best ten seconds {best:.3f}")
        assert after == pytest.approx(1, abs=0.05)
        assert best <= 1.25
