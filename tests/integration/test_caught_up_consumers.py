"""Consumers at the end of their partitions, beside the broker's own quota: records come as fast, and by as few fetches.

Each has a partition of its own, waits for records at the broker as clients do (500 ms), and obeys its throttle times.
"""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import FETCH, FETCH_VERSION, produce_request
from tests.harness.measure import SHORT_WINDOW
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection, frame
from tests.integration.conftest import NODE_IDS, fresh_name

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LIMIT_BYTES_PER_S = 50_000
CONSUMERS = 20
RECORD_BYTES = 500
LEADER = NODE_IDS[0]
POLLED_S = 8.0
FED_S = 15.0
"""Five windows."""
TIMEOUT_S = 60.0
SHARE = 0.8
"""The least that counts as equal."""
MOST = 1.3


@dataclass(slots=True)
class Follower:
    """One consumer of one partition, and what it has seen."""

    address: Address
    topic: str
    client_id: str
    partition: int
    fetches: int = 0
    came_bytes: int = 0
    came_s: list[float] = field(default_factory=list)
    """When each record came."""
    error: str = ""

    def run(self, stop: threading.Event) -> None:
        try:
            with Connection(self.address, TIMEOUT_S) as connection:
                while not stop.is_set():
                    answer = connection.exchange(self._fetch(len(self.came_s)))
                    self.fetches += 1
                    self.came_bytes += len(answer) - 4
                    self.came_s += [time.monotonic()] * _records(answer, self.topic)
                    stop.wait(struct.unpack_from(">i", answer, 8)[0] / 1000)
        except OSError as error:
            self.error = repr(error)

    def _fetch(self, offset: int) -> bytes:
        """v11 without a session, of up to 50 MiB, as clients ask for."""
        name = self.topic.encode()
        body = (
            struct.pack(">iiiibii", -1, 500, 1, 50 << 20, 0, 0, -1)  # a consumer, max_wait_ms, min_bytes, max_bytes
            + struct.pack(">ih", 1, len(name))
            + name
            + struct.pack(">iiiqqi", 1, self.partition, -1, offset, -1, 1 << 20)
            + struct.pack(">ih", 0, 0)
        )
        return frame(FETCH, FETCH_VERSION, 1, self.client_id, body)


@dataclass(frozen=True, slots=True)
class Group:
    """All consumers of one client-id."""

    topic: str
    followers: list[Follower]
    sent_s: list[list[float]]
    """When each record of each partition was produced."""

    @property
    def fetches(self) -> int:
        return sum(follower.fetches for follower in self.followers)

    @property
    def records(self) -> int:
        return sum(len(follower.came_s) for follower in self.followers)

    @property
    def bytes_per_record(self) -> float:
        return sum(follower.came_bytes for follower in self.followers) / self.records

    @property
    def latencies_ms(self) -> list[float]:
        pairs = zip(self.sent_s, self.followers, strict=True)
        return [
            1000 * (came_s - sent_s)
            for sent, follower in pairs
            for sent_s, came_s in zip(sent, follower.came_s, strict=False)
        ]

    def errors(self) -> list[str]:
        return [follower.error for follower in self.followers if follower.error]


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_idle_consumers_are_polled_side_by_side(cluster: KafkaCluster) -> None:
    """Twenty that use a tenth of a small quota: polled as often as at the broker, and each record comes at once."""
    with _groups(cluster, limited="sluice") as groups:
        _feed(cluster, groups, POLLED_S, LIMIT_BYTES_PER_S / 10)
    own, sluice = groups
    for group, side in ((sluice, "sluice"), (own, "broker")):
        took = group.latencies_ms
        print(
            f"idle at {side}: {group.fetches} fetches, {median(took):.1f} ms, p99 {quantiles(took, n=100)[-1]:.1f} ms"
        )
    assert own.errors() == sluice.errors() == []
    assert sluice.fetches >= SHARE * own.fetches
    assert sluice.records >= SHARE * own.records


@pytest.mark.integration
@pytest.mark.timeout(180)
def test_records_over_the_quota_are_not_fetched_one_by_one(cluster: KafkaCluster) -> None:
    """They come half as fast again as the quota lets them through."""
    with _groups(cluster, limited="own") as groups:
        _feed(cluster, groups, FED_S, LIMIT_BYTES_PER_S * 1.5)
    own, sluice = groups
    for group, side in ((sluice, "sluice"), (own, "broker")):
        print(f"fed at {side}: {group.fetches} fetches of {group.records} records, {group.bytes_per_record:.0f} B each")
    assert own.errors() == sluice.errors() == []
    assert sluice.fetches <= MOST * own.fetches
    assert sluice.bytes_per_record <= MOST * own.bytes_per_record
    assert sluice.records >= SHARE * own.records


@contextmanager
def _groups(cluster: KafkaCluster, limited: str) -> Iterator[tuple[Group, Group]]:
    """One at the broker, under its own quota if it is the one that is ``limited`` too, and one through the proxy."""
    client_id = fresh_name("follower")
    quota = f"quotas:\n  - {{entity: {{client-id: sluice-{client_id}}}, consumer_byte_rate: {LIMIT_BYTES_PER_S}}}\n"
    own_id = f"own-{client_id}"
    if limited == "own":
        cluster.set_client_quotas("consumer_byte_rate", {own_id: LIMIT_BYTES_PER_S})
    try:
        with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quota, settings=SHORT_WINDOW) as sluice:
            groups = (
                _group(cluster, cluster.direct(LEADER), own_id),
                _group(cluster, sluice.broker_addresses[LEADER], f"sluice-{client_id}"),
            )
            stop = threading.Event()
            threads = [
                threading.Thread(target=follower.run, args=(stop,), daemon=True)
                for group in groups
                for follower in group.followers
            ]
            for thread in threads:
                thread.start()
            try:
                yield groups
            finally:
                stop.set()
                for thread in threads:
                    thread.join(TIMEOUT_S)
    finally:
        cluster.set_client_quotas("consumer_byte_rate", {own_id: None})


def _group(cluster: KafkaCluster, address: Address, client_id: str) -> Group:
    topic = fresh_name("followed")
    cluster.create_topic(topic, leader=LEADER, partitions=CONSUMERS)
    followers = [Follower(address, topic, client_id, number) for number in range(CONSUMERS)]
    return Group(topic, followers, [[] for _ in range(CONSUMERS)])


def _feed(cluster: KafkaCluster, groups: tuple[Group, Group], duration_s: float, bytes_per_s: float) -> None:
    """Produce to each group at that rate, a record to a partition in turn, and wait until the last may have come."""
    begin_s = time.monotonic()
    with Connection(cluster.direct(LEADER), TIMEOUT_S) as connection:
        number = 0
        while (at_s := number * RECORD_BYTES / bytes_per_s) < duration_s:
            time.sleep(max(0.0, begin_s + at_s - time.monotonic()))
            partition = number * 7 % CONSUMERS
            for group in groups:
                group.sent_s[partition].append(time.monotonic())
                connection.exchange(produce_request(group.topic, "feeder", RECORD_BYTES, partition))
            number += 1
    time.sleep(1.0)


def _records(answer: bytes, topic: str) -> int:
    """How many records there are in whole batches. A broker that throttles a Fetch names no topic at all."""
    at = 18 + 4  # size, correlation id, throttle time, error, session; the count of topics
    if struct.unpack_from(">i", answer, 18)[0] == 0:
        return 0
    at += 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8 + 8  # name, count, index, error, and three offsets
    aborted = struct.unpack_from(">i", answer, at)[0]
    at += 4 + 16 * max(aborted, 0) + 4
    end = at + 4 + struct.unpack_from(">i", answer, at)[0]
    at += 4
    count = 0
    while at + 61 <= end and at + 12 + (size := struct.unpack_from(">i", answer, at + 8)[0]) <= end:
        count += 1 + struct.unpack_from(">i", answer, at + 23)[0]
        at += 12 + size
    return count
