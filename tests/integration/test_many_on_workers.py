"""10,000 connections and 100,000 quota entities on two workers."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, start_loads
from tests.harness.measure import SHORT_WINDOW, SHORT_WINDOW_S
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, Connection, frame
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.matrix,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

CONNECTIONS = 10_000
ENTITIES = 100_000
OPENERS = 16
LIMIT_BYTES_PER_S = 500_000
WINDOWS = 5
TOLERANCE = 0.06
QUESTION = frame(API_VERSIONS, 0, 1, "asking", b"")


def quotas(others: int) -> str:
    """Return a limit for a greedy client, and one for each of so many others."""
    lines = [f"- {{entity: {{client-id: greedy}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}"]
    lines += [
        f"- {{entity: {{client-id: client-{number}}}, producer_byte_rate: {others}}}" for number in range(ENTITIES)
    ]
    return "quotas:\n" + "\n".join(lines) + "\n"


@pytest.fixture
def sluice(cluster: KafkaCluster) -> Iterator[SluiceProcess]:
    settings = {
        **SHORT_WINDOW,
        "workers": 2,
        "cluster": {"refresh": "1s"},
        "limits": {"connections": 12_000, "connections_per_ip": 12_000},
    }
    with SluiceProcess(cluster.bootstrap, NODE_IDS, quotas=quotas(10**8), settings=settings) as running:
        yield running


class Asking:
    """Asks at an address again and again, and notes the longest time until an answer."""

    def __init__(self, address: Address) -> None:
        self.longest_s = 0.0
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Asking":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with Connection(self._address, 30.0) as connection:
            while not self._is_over.wait(0.005):
                begin_s = time.monotonic()
                connection.exchange(QUESTION)
                self.longest_s = max(self.longest_s, time.monotonic() - begin_s)


def test_ten_thousand_connections_on_two_workers_are_served_within_limits(
    cluster: KafkaCluster, sluice: SluiceProcess
) -> None:
    """Also while the policy of all entities crosses to the workers."""
    wait_until(lambda: len(leaders_of(sluice)), "all brokers are placed", equals=2)
    leaders = leaders_of(sluice)
    topics = {leader: fresh_name("many") for leader in leaders}
    for leader, topic in topics.items():
        cluster.create_topic(topic, leader=leader)

    def opened(number: int) -> Connection:
        leader = leaders[number % 2]
        shape = Shape(sluice.broker_addresses[leader], produce_request(topics[leader], f"client-{number}", 200))
        connection = stack.enter_context(Connection(shape.address, 60.0))
        shape.answer(connection.exchange(shape.request), 0.0)  # raises RefusedError
        return connection

    with ExitStack() as stack, ThreadPoolExecutor(OPENERS) as pool:
        connections = list(pool.map(opened, range(CONNECTIONS)))
        wait_until(lambda: sluice.metrics().value("sluice_sessions"), "all are shown", 60.0, equals=CONNECTIONS)
        shapes = [
            Shape(sluice.broker_addresses[leader], produce_request(topic, "greedy", 20_000))
            for leader, topic in topics.items()
        ]
        loads, driving = start_loads(shapes, (WINDOWS + 3) * SHORT_WINDOW_S)
        with ExitStack() as asked:
            asking = [asked.enter_context(Asking(sluice.broker_addresses[leader])) for leader in leaders]
            sluice.write_quotas(quotas(10**7))
            wait_until(lambda: in_force(sluice), "the new quotas are in force", 60.0, equals=2)
            for thread in driving:
                thread.join()
        rates = [load.series().steady_rate(WINDOWS, SHORT_WINDOW_S) for load in loads]
        pauses = [each.longest_s for each in asking]
        print(f"rates {rates}, longest times until an answer while quotas were loaded {pauses} s")
        assert rates == pytest.approx([LIMIT_BYTES_PER_S] * 2, rel=TOLERANCE)
        answers = list(pool.map(lambda each: each.exchange(QUESTION), connections))
        assert len(answers) == CONNECTIONS
        wait_until(lambda: sluice.metrics().value("sluice_quotas_configured"), "metrics", 60.0, equals=ENTITIES + 1)
        ended = [line for line in sluice.logs() if line["level"] in {"warning", "error"}]
        assert ended == [], "none was silent for too long"


def leaders_of(sluice: SluiceProcess) -> list[int]:
    """Return a broker of each worker."""
    brokers = json.loads(sluice.get("/api/v1/brokers")[1])["items"]
    return list({each["worker"]: int(each["node_id"]) for each in brokers}.values())


def in_force(sluice: SluiceProcess) -> int:
    """Return how often quotas came into force."""
    return sum(line["event"] == "quotas in force" for line in sluice.logs())
