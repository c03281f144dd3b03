"""Six brokers behind instances with two workers each, while instances join, leave and are killed.

Each client gets its quota at each broker all the time: one that does not move notices nothing, and one that moves may
have a fresh window once. The longest pauses of producers are printed, for docs/scaling.md.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_PERIOD_S, SHORT_SAMPLES, SHORT_WINDOW, SHORT_WINDOW_S, LogMeter
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import fresh_name

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.matrix,
    pytest.mark.alone,
    pytest.mark.timeout(900),
]

NODE_IDS = tuple(range(6))
WORKERS = 2
LIMITS = {"small": 100_000, "large": 200_000}
QUOTAS = "quotas:\n" + "".join(
    f"- {{entity: {{client-id: {name}}}, producer_byte_rate: {limit}}}\n" for name, limit in LIMITS.items()
)
PHASE_S = 8 * SHORT_WINDOW_S
TOLERANCE = 0.03


@pytest.fixture(scope="module")
def many_brokers() -> Iterator[KafkaCluster]:
    kept = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "3"}
    with KafkaCluster(node_ids=NODE_IDS, properties={**kept, "group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


class Instances:
    def __init__(self, cluster: KafkaCluster, folder: Path, stack: ExitStack) -> None:
        self.running: dict[str, SluiceProcess] = {}
        self._known: dict[str, SluiceProcess] = {}
        self._cluster = cluster
        self._stack = stack
        self._group = fresh_name("owners")
        self._secret = folder / "secret"
        self._secret.write_text("a secret of all instances")

    def start(self, name: str) -> None:
        """Start an instance; again, at its addresses of before."""
        self.running[name] = self._known[name] if name in self._known else self._new(name)
        self.running[name].launch()

    def _new(self, name: str) -> SluiceProcess:
        owners = {"instance": name, "group": self._group, "secret_file": str(self._secret), "heartbeat": "500ms"}
        settings = {**SHORT_WINDOW, "owners": owners, "workers": WORKERS, "drain": {"delay": "1s"}}
        instance = SluiceProcess(self._cluster.bootstrap, NODE_IDS, quotas=QUOTAS, settings=settings)
        self._stack.callback(instance.close)
        self._known[name] = instance
        return instance

    def owners(self) -> dict[int, str]:
        """Return who owns each broker, once all instances say the same."""
        found: list[dict[int, str]] = []

        def agree() -> bool:
            found[:] = [_owners_of(each) for each in self.running.values()]
            alike = all(each == found[0] for each in found)
            return alike and found[0].keys() == set(NODE_IDS) and set(found[0].values()) == set(self.running)

        wait_until(agree, f"{', '.join(self.running)} own all brokers", 60.0)
        return found[0]


def _owners_of(instance: SluiceProcess) -> dict[int, str]:
    status, text = instance.get("/api/v1/owners")
    found = json.loads(text)["owners"] if status == 200 else {}
    return {int(node_id): owner for node_id, owner in found.items()}


class Clients:
    """A greedy producer of each client-id at each broker, and paced ones with acks=all, which measure pauses."""

    def __init__(self, cluster: KafkaCluster, stack: ExitStack, bootstrap: str) -> None:
        self.meters: dict[tuple[str, int], LogMeter] = {}
        self.paced: dict[int, tuple[str, ClientProcess]] = {}
        self.pauses: dict[int, LogMeter] = {}
        for node_id in NODE_IDS:
            for name in LIMITS:
                topic = fresh_name(name)
                cluster.create_topic(topic, leader=node_id)
                task = Produce(bootstrap=bootstrap, client_id=name, topic=topic, duration_s=600, record_bytes=4_000)
                stack.enter_context(CONFLUENT.run(task))
                self.meters[name, node_id] = stack.enter_context(LogMeter(cluster.log_folder(topic)))
        for node_id in NODE_IDS:
            topic = fresh_name("paced")
            cluster.create_topic(topic, leader=node_id)
            task = Produce(
                bootstrap=bootstrap,
                client_id="paced",
                topic=topic,
                duration_s=600,
                record_bytes=500,
                rate_bytes_per_s=50_000,
                acks=-1,
                idempotent=True,
            )
            kind = (CONFLUENT, AIOKAFKA)[node_id % 2]
            self.paced[node_id] = (topic, stack.enter_context(kind.run(task)))
            self.pauses[node_id] = stack.enter_context(LogMeter(cluster.log_folder(topic)))

    def all_produce(self) -> bool:
        return not any(each.series.is_empty() for each in (*self.meters.values(), *self.pauses.values()))


def test_quotas_hold_at_each_broker_while_instances_come_and_go(many_brokers: KafkaCluster, tmp_path: Path) -> None:
    with ExitStack() as stack:
        instances = Instances(many_brokers, tmp_path, stack)
        for name in ("edge-1", "edge-2"):
            instances.start(name)
        before = instances.owners()
        bootstrap = ",".join(each.bootstrap for each in instances.running.values())
        clients = Clients(many_brokers, stack, bootstrap)
        wait_until(clients.all_produce, "all clients produce", 120.0)
        time.sleep(2 * SHORT_PERIOD_S)
        events: dict[str, Callable[[], object]] = {
            "nothing happens": lambda: None,
            "edge-3 joins": lambda: instances.start("edge-3"),
            "edge-1 leaves": lambda: instances.running.pop("edge-1").stop(),
            "edge-1 is back": lambda: instances.start("edge-1"),
            "edge-2 is killed": lambda: instances.running.pop("edge-2").signal(signal.SIGKILL),
        }
        wrong: list[str] = []
        for event, happen in events.items():
            begin_s = time.monotonic()
            happen()
            after = instances.owners()
            time.sleep(PHASE_S)
            moved = {node_id for node_id in NODE_IDS if before[node_id] != after[node_id]}
            wrong += judge(event, clients, moved, begin_s, time.monotonic() - 1.0)
            before = after
        assert not wrong
        for _, client in clients.paced.values():
            client.ask_to_stop()
        for topic, client in clients.paced.values():
            sent = client.result(timeout_s=90)
            assert sent.errors == ()
            reading = Consume(
                bootstrap=many_brokers.bootstrap, client_id="reader", topic=topic, records=sent.records, duration_s=30.0
            )
            with CONFLUENT.run(reading) as consumer:
                found = consumer.result()
            assert (found.records, found.corrupt) == (sent.records, 0)


def judge(event: str, clients: Clients, moved: set[int], begin_s: float, end_s: float) -> list[str]:
    """Print rates and pauses since an event; return which rates are wrong."""
    wrong: list[str] = []
    stayed: list[float] = []
    most = 0.0
    for (name, node_id), meter in clients.meters.items():
        if node_id in moved:
            fresh = (SHORT_SAMPLES - 1) / (end_s - begin_s)
            most = max(most, ratio := meter.series.rate(begin_s, end_s) / LIMITS[name])
            if ratio > 1 + fresh + TOLERANCE + 0.1:  # and a batch for each window
                wrong.append(f"{event}: {name} at moved broker {node_id}: {ratio:.3f}")
            continue
        ratio = meter.series.rate_by_bursts(begin_s, end_s, SHORT_PERIOD_S) / LIMITS[name]
        stayed.append(ratio)
        if abs(ratio - 1) > TOLERANCE:
            wrong.append(f"{event}: {name} at broker {node_id}: {ratio:.3f}")
    pauses = {node_id: meter.series.longest_pause_s(begin_s, end_s) for node_id, meter in clients.pauses.items()}
    at_moved = max((pause for node_id, pause in pauses.items() if node_id in moved), default=0.0)
    at_others = max((pause for node_id, pause in pauses.items() if node_id not in moved), default=0.0)
    print(
        f"{event}: {len(moved)} brokers move; rates at others {min(stayed):.3f} to {max(stayed):.3f} of the quota, "
        f"at moved ones up to {most:.3f}; longest pause {at_moved:.2f} s at moved brokers, {at_others:.2f} s at others"
    )
    return wrong
