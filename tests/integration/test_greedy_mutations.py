"""Ways around controller_mutation_rate: what counts is how many topics there are in the end."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import pytest

from protocol.overlay import CREATE_TOPICS
from protocol.table import SPECS, key_version
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.protocol.encode import encode_request

QUOTA: Final = "controller_mutation_rate"
LIMIT: Final = 2.0
SAMPLES: Final = 6
DURATION_S: Final = 40.0
STRICT, PERMISSIVE = key_version(CREATE_TOPICS, 7), key_version(CREATE_TOPICS, 5)
ANSWER_S: Final = 60.0
ARRIVED_S: Final = 3.0
"""What nobody waits for is under way for some time."""

_numbers = count(1)


@dataclass(slots=True)
class Attack:
    """Threads that each live one life after the other. Topics are named after it."""

    name: str
    life: Callable[["Attack"], None]
    threads: int
    address: Address
    renames: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def request(self, version: int = STRICT) -> bytes:
        """One topic of one partition."""
        number = next(_numbers)
        topic = {"name": f"greedy-{self.name}-{number}", "num_partitions": 1, "replication_factor": 1}
        client_id = f"{self.name}-{number if self.renames else ''}"
        return encode_request(SPECS[version], {"topics": [topic], "timeout_ms": 30_000}, client_id=client_id)

    def live(self) -> None:
        while not self.over.is_set():
            with suppress(OSError):
                self.life(self)


def steadily(attack: Attack) -> None:
    with Connection(attack.address, ANSWER_S) as connection:
        while not attack.over.is_set():
            connection.exchange(attack.request())


def anew(attack: Attack) -> None:
    with Connection(attack.address, ANSWER_S) as connection:
        connection.exchange(attack.request())


def half_closed(attack: Attack) -> None:
    with Connection(attack.address, ANSWER_S) as connection:
        connection.send(attack.request())
        connection.finish()
        connection.rest()


def gone_at_once(attack: Attack) -> None:
    """Does not wait for any answer."""
    with Connection(attack.address, ANSWER_S) as connection:
        connection.send(attack.request())
        attack.over.wait(0.05)


def pipelined(attack: Attack) -> None:
    with Connection(attack.address, ANSWER_S) as connection:
        connection.send(b"".join(attack.request() for _ in range(20)))
        for _ in range(20):
            connection.receive()


def of_old(attack: Attack) -> None:
    """A version that is never refused, and waits."""
    with Connection(attack.address, ANSWER_S) as connection:
        connection.exchange(attack.request(PERMISSIVE))


WAYS: Final[tuple[tuple[str, Callable[[Attack], None], int, bool], ...]] = (
    ("steady", steadily, 20, False),
    ("anew", anew, 5, False),
    ("half-closed", half_closed, 5, False),
    ("gone", gone_at_once, 5, False),
    ("pipelined", pipelined, 3, False),
    ("old", of_old, 10, False),
    ("renamed", anew, 5, True),
)
LITTLE: Final = ("gone", "half-closed")
"""Those that may get nothing, by their own doing."""


@pytest.mark.matrix
@pytest.mark.timeout(240)
def test_greedy_client_stays_within_controller_mutation_rate(cluster: KafkaCluster) -> None:
    found = _attack(cluster, DURATION_S)
    for name, (topics, most) in found.items():
        print(f"mutations, {name}: {topics} topics / {most:.0f} ({topics / most:.2f})")
    assert {name: each for name, each in found.items() if each[0] > each[1]} == {}
    assert {name for name, (topics, _) in found.items() if not topics} <= set(LITTLE)


def _attack(cluster: KafkaCluster, seconds: float) -> dict[str, tuple[int, float]]:
    """How many topics each attack has made, and how many it may have made by the time of the count: what the bucket
    holds, what has come into it since, and the one that overdraws it.
    """
    quotas = "quotas:\n" + "".join(
        f"  - {{entity: {{client-id: {{prefix: {name}-}}}}, {QUOTA}: {LIMIT}}}\n" for name, *_ in WAYS
    )
    settings = {"quotas": {"controller_window": {"samples": SAMPLES, "size": "1s"}}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings) as sluice:
        address = next(iter(sluice.broker_addresses.values()))
        attacks = [Attack(name, life, threads, address, renames) for name, life, threads, renames in WAYS]
        begin_s = time.monotonic()
        with _running(attacks):
            time.sleep(seconds)
        counted = _counted(cluster)
        elapsed_s = time.monotonic() - begin_s
        most = LIMIT * (SAMPLES + elapsed_s) + 1
        return {each.name: (counted(each.name), most) for each in attacks}


@contextmanager
def _running(attacks: list[Attack]) -> Iterator[None]:
    threads = sum(each.threads for each in attacks)
    with ThreadPoolExecutor(threads) as pool:
        for each in attacks:
            for _ in range(each.threads):
                pool.submit(each.live)
        try:
            yield
        finally:
            for each in attacks:
                each.over.set()


def _counted(cluster: KafkaCluster) -> Callable[[str], int]:
    """By the names of all topics, when everything that was under way has arrived."""
    time.sleep(ARRIVED_S)
    with cluster.admin() as admin:
        topics = admin.topics()
    return lambda name: sum(topic.startswith(f"greedy-{name}-") for topic in topics)
