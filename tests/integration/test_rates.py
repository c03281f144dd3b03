"""Quotas of 1 MB/s and 5 MB/s against greedy clients, and neighbours that keep their pace: all at the same time.

A producer's rate is taken from the partition's log at the broker, a consumer's from the bytes that reached it. Requests
are small against the quota (16 KiB batches, 64 KiB fetches). What is not measured in the records (headers of batches,
requests and answers) is some 1 % of the bytes charged.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_2, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.measure import SHORT_WINDOW, SHORT_WINDOW_S, LogMeter, Series, log_bytes
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = pytest.mark.timeout(240)

MB = 1_000_000
TOLERANCE = 0.05
WINDOWS = 6
MEASURED_S = SHORT_WINDOW_S * (1 + WINDOWS)
LONGEST_S = 90.0  # an upper bound: the clients are asked to stop when each has been measured
THROTTLED_S = MEASURED_S / 5  # what is let through at once takes a busy machine a part of the time
PACE_BYTES_PER_S = 200_000
FETCH_BYTES = 65_536
PACED_PRODUCER = "paced-producer"
PACED_CONSUMER = "paced-consumer"
SILENT = {f"greedy-producer-{AIOKAFKA.name}"}
"""These clients do not say what they were told."""
FILL_BYTES = 200 * MB


@dataclass(frozen=True, slots=True)
class Greed:
    """Who wants more than it may have, and what that is."""

    producers: dict[ClientKind, int]
    consumers: dict[ClientKind, int]


FEW = Greed({KAFKA_PYTHON: MB // 2, JAVA_4: MB}, {CONFLUENT: MB, JAVA_4: MB // 2})  # so little that a busy machine can
ALL = Greed(
    {KAFKA_PYTHON: 1 * MB, AIOKAFKA: 1 * MB, CONFLUENT: 5 * MB, JAVA_4: 5 * MB, JAVA_2: 1 * MB},
    {CONFLUENT: 5 * MB, JAVA_4: 1 * MB, KAFKA_PYTHON: 1 * MB},
)


@dataclass(frozen=True, slots=True)
class Runs:
    """What was measured: series of bytes by client-id, and the proxy's own metrics at the end."""

    limits: dict[str, int]
    """Of those that are greedy."""
    series: dict[str, Series]
    throttled: dict[str, float]
    told_ms: dict[str, float | None]


def _producer(kind: ClientKind) -> str:
    return f"greedy-producer-{kind.name}"


def _consumer(kind: ClientKind) -> str:
    return f"greedy-consumer-{kind.name}"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(FEW, id="few", marks=pytest.mark.integration),
        pytest.param(ALL, id="all", marks=pytest.mark.matrix),
    ],
)
def runs(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[Runs]:
    greed: Greed = request.param
    filled = fresh_name("filled")
    cluster.create_topic(filled, leader=NODE_IDS[0])
    _fill(cluster, filled)
    with (
        SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(greed), settings=SHORT_WINDOW) as sluice,
        ExitStack() as stack,
    ):
        topics = {name: fresh_name(name) for name in [*map(_producer, greed.producers), PACED_PRODUCER]}
        clients = _start(cluster, sluice, greed, filled, topics, stack)
        meters = {name: stack.enter_context(LogMeter(cluster.log_folder(topic))) for name, topic in topics.items()}
        for name, client in clients.items():
            seen = meters[name].series if name in meters else None
            client.wait_for(partial(_is_measured, seen), "its rate was measured", LONGEST_S)
        for client in clients.values():
            client.ask_to_stop()
        results = {name: client.result(timeout_s=60) for name, client in clients.items()}
        metrics = sluice.metrics()
        yield Runs(
            limits={_producer(kind): limit for kind, limit in greed.producers.items()}
            | {_consumer(kind): limit for kind, limit in greed.consumers.items()},
            series={n: meters[n].series if n in meters else _received(client) for n, client in clients.items()},
            throttled={n: metrics.value("sluice_quota_throttle_seconds_total", client_id=n) for n in clients},
            told_ms={name: result.throttle_ms for name, result in results.items()},
        )


def test_the_greedy_are_held_to_their_quotas(runs: Runs) -> None:
    rates = {name: runs.series[name].steady_rate(WINDOWS, SHORT_WINDOW_S) for name in runs.limits}
    assert rates == pytest.approx(runs.limits, rel=TOLERANCE)
    assert {name: runs.throttled[name] for name in runs.limits if runs.throttled[name] < THROTTLED_S} == {}
    assert {name for name in runs.limits if not runs.told_ms[name]} <= SILENT


def test_paced_neighbours_keep_their_pace(runs: Runs) -> None:
    """The quota of the neighbours' client-ids is none of their business, though they share brokers and the proxy."""
    paced = (PACED_PRODUCER, PACED_CONSUMER)
    rates = {name: runs.series[name].steady_rate(WINDOWS, SHORT_WINDOW_S) for name in paced}
    assert rates == pytest.approx(dict.fromkeys(paced, PACE_BYTES_PER_S), rel=TOLERANCE)
    assert {runs.throttled[name] for name in paced} == {0}


def _start(
    cluster: KafkaCluster, sluice: SluiceProcess, greed: Greed, filled: str, topics: dict[str, str], stack: ExitStack
) -> dict[str, ClientProcess]:
    """Producers write to topics of their own; one consumer follows the paced producer."""
    clients: dict[str, ClientProcess] = {}
    at = sluice.bootstrap
    for position, topic in enumerate(topics.values()):
        cluster.create_topic(topic, leader=NODE_IDS[position % len(NODE_IDS)])
    for kind in greed.producers:
        name = _producer(kind)
        task = Produce(bootstrap=at, client_id=name, topic=topics[name], duration_s=LONGEST_S, record_bytes=4_000)
        clients[name] = stack.enter_context(kind.run(task))
    for kind in greed.consumers:
        name = _consumer(kind)
        fetch = Consume(
            bootstrap=at, client_id=name, topic=filled, duration_s=LONGEST_S, partition_fetch_bytes=FETCH_BYTES
        )
        clients[name] = stack.enter_context(kind.run(fetch))
    pace = Produce(
        bootstrap=at,
        client_id=PACED_PRODUCER,
        topic=topics[PACED_PRODUCER],
        duration_s=LONGEST_S,
        record_bytes=10_000,
        rate_bytes_per_s=PACE_BYTES_PER_S,
    )
    follow = Consume(bootstrap=at, client_id=PACED_CONSUMER, topic=topics[PACED_PRODUCER], duration_s=LONGEST_S)
    clients[PACED_PRODUCER] = stack.enter_context(KAFKA_PYTHON.run(pace))
    clients[PACED_CONSUMER] = stack.enter_context(CONFLUENT.run(follow))
    return clients


def _is_measured(seen: Series | None, client: ClientProcess) -> bool:
    return (seen or _received(client)).has_steady_rate(WINDOWS, SHORT_WINDOW_S)


def _received(client: ClientProcess) -> Series:
    progress = [(event["at_s"], event["bytes"]) for event in client.of_kind("progress")]
    return Series([(progress[0][0] - 0.001, 0), *progress] if progress else [])


def _fill(cluster: KafkaCluster, topic: str) -> None:
    """More than the greediest consumer will read. Two batches just fill a fetch: a broker sends what is left of its
    size as part of a batch, which is charged and thrown away by every client.
    """
    shape = Shape(cluster.direct(NODE_IDS[0]), produce_request(topic, "fill", FETCH_BYTES // 2), connections=4)
    folder = cluster.log_folder(topic)
    while log_bytes(folder) < FILL_BYTES:
        (load,) = run_loads([shape], duration_s=1.0)
        assert load.errors == []


def _quotas(greed: Greed) -> str:
    limits = {_producer(kind): ("producer_byte_rate", limit) for kind, limit in greed.producers.items()}
    limits |= {_consumer(kind): ("consumer_byte_rate", limit) for kind, limit in greed.consumers.items()}
    lines = [f"  - {{entity: {{client-id: {name}}}, {quota}: {limit}}}\n" for name, (quota, limit) in limits.items()]
    return "quotas:\n" + "".join(lines)
