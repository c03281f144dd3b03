"""Quotas of 1 MB/s and 5 MB/s against greedy clients, and neighbours that keep their pace: all at the same time.

A producer's rate is taken from the partition's log at the broker, a consumer's from the bytes that reached it. Requests
are small against the quota (16 KiB batches, 64 KiB fetches). What is not measured in the records (headers of batches,
requests and answers) is some 1 % of the bytes charged.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_2, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.measure import MEASURED_S, LogMeter, Series, log_bytes
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

MB = 1_000_000
TOLERANCE = 0.05
DURATION_S = MEASURED_S + 4.0
PACE_BYTES_PER_S = 200_000
FETCH_BYTES = 65_536
FILL_BYTES = 320 * MB
GREEDY_PRODUCERS = ((KAFKA_PYTHON, 1 * MB), (AIOKAFKA, 1 * MB), (CONFLUENT, 5 * MB), (JAVA_4, 5 * MB), (JAVA_2, 1 * MB))
GREEDY_CONSUMERS = ((CONFLUENT, 5 * MB), (JAVA_4, 1 * MB), (KAFKA_PYTHON, 1 * MB))


@dataclass(frozen=True, slots=True)
class Runs:
    """What was measured: series of bytes by client-id, and the proxy's own metrics at the end."""

    series: dict[str, Series]
    throttled: dict[str, float]
    told_ms: dict[str, float | None]


def _producer(kind: ClientKind) -> str:
    return f"greedy-producer-{kind.name}"


def _consumer(kind: ClientKind) -> str:
    return f"greedy-consumer-{kind.name}"


@pytest.fixture(scope="module")
def runs(cluster: KafkaCluster) -> Iterator[Runs]:
    filled = fresh_name("filled")
    cluster.create_topic(filled, leader=NODE_IDS[0])
    _fill(cluster, filled)
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas()) as sluice, ExitStack() as stack:
        clients = _start(cluster, sluice, filled, stack)
        meters = {
            name: stack.enter_context(LogMeter(cluster.log_folder(name))) for name in clients if "producer" in name
        }
        results = {name: client.result(timeout_s=DURATION_S + 60) for name, client in clients.items()}
        series = {name: meter.series for name, meter in meters.items()}
        series |= {name: _received(client) for name, client in clients.items() if name not in meters}
        metrics = sluice.metrics()
        yield Runs(
            series=series,
            throttled={n: metrics.value("sluice_quota_throttle_seconds_total", client_id=n) for n in clients},
            told_ms={name: result.throttle_ms for name, result in results.items()},
        )


@pytest.mark.parametrize(("kind", "limit"), GREEDY_PRODUCERS, ids=lambda value: getattr(value, "name", str(value)))
def test_greedy_producer_is_held_to_its_quota(runs: Runs, kind: ClientKind, limit: int) -> None:
    name = _producer(kind)
    assert runs.series[name].steady_rate() == pytest.approx(limit, rel=TOLERANCE)
    assert runs.throttled[name] > DURATION_S / 3
    assert not kind.reports_throttle or (runs.told_ms[name] or 0) > 0


@pytest.mark.parametrize(("kind", "limit"), GREEDY_CONSUMERS, ids=lambda value: getattr(value, "name", str(value)))
def test_greedy_consumer_is_held_to_its_quota(runs: Runs, kind: ClientKind, limit: int) -> None:
    name = _consumer(kind)
    assert runs.series[name].steady_rate() == pytest.approx(limit, rel=TOLERANCE)
    assert runs.throttled[name] > DURATION_S / 3
    assert not kind.reports_throttle or (runs.told_ms[name] or 0) > 0


@pytest.mark.parametrize("name", ["paced-producer", "paced-consumer"])
def test_paced_neighbour_keeps_its_pace(runs: Runs, name: str) -> None:
    """The quota of the neighbours' client-ids is none of its business, though it shares brokers and the proxy."""
    assert runs.series[name].steady_rate() == pytest.approx(PACE_BYTES_PER_S, rel=TOLERANCE)
    assert runs.throttled[name] == 0


def _start(cluster: KafkaCluster, sluice: SluiceProcess, filled: str, stack: ExitStack) -> dict[str, ClientProcess]:
    """Producers write to a topic of their own name; one consumer follows the paced producer."""
    clients: dict[str, ClientProcess] = {}
    at = sluice.bootstrap
    names = [*(_producer(kind) for kind, _ in GREEDY_PRODUCERS), "paced-producer"]
    for position, name in enumerate(names):
        cluster.create_topic(name, leader=NODE_IDS[position % len(NODE_IDS)])
    for kind, _ in GREEDY_PRODUCERS:
        name = _producer(kind)
        task = Produce(bootstrap=at, client_id=name, topic=name, duration_s=DURATION_S, record_bytes=4_000)
        clients[name] = stack.enter_context(kind.run(task))
    for kind, _ in GREEDY_CONSUMERS:
        name = _consumer(kind)
        fetch = Consume(
            bootstrap=at, client_id=name, topic=filled, duration_s=DURATION_S, partition_fetch_bytes=FETCH_BYTES
        )
        clients[name] = stack.enter_context(kind.run(fetch))
    pace = Produce(
        bootstrap=at,
        client_id="paced-producer",
        topic="paced-producer",
        duration_s=DURATION_S,
        record_bytes=10_000,
        rate_bytes_per_s=PACE_BYTES_PER_S,
    )
    follow = Consume(bootstrap=at, client_id="paced-consumer", topic="paced-producer", duration_s=DURATION_S)
    clients["paced-producer"] = stack.enter_context(KAFKA_PYTHON.run(pace))
    clients["paced-consumer"] = stack.enter_context(CONFLUENT.run(follow))
    return clients


def _received(client: ClientProcess) -> Series:
    progress = [(event["at_s"], event["bytes"]) for event in client.of_kind("progress")]
    return Series([(progress[0][0] - 0.001, 0), *progress])


def _fill(cluster: KafkaCluster, topic: str) -> None:
    """More than the greediest consumer will read. Two batches just fill a fetch: a broker sends what is left of its
    size as part of a batch, which is charged and thrown away by every client.
    """
    shape = Shape(cluster.direct(NODE_IDS[0]), produce_request(topic, "fill", FETCH_BYTES // 2), connections=4)
    folder = cluster.log_folder(topic)
    while log_bytes(folder) < FILL_BYTES:
        (load,) = run_loads([shape], duration_s=1.0)
        assert load.errors == []


def _quotas() -> str:
    limits = {_producer(kind): ("producer_byte_rate", limit) for kind, limit in GREEDY_PRODUCERS}
    limits |= {_consumer(kind): ("consumer_byte_rate", limit) for kind, limit in GREEDY_CONSUMERS}
    lines = [f"  - {{entity: {{client-id: {name}}}, {quota}: {limit}}}\n" for name, (quota, limit) in limits.items()]
    return "quotas:\n" + "".join(lines)
