"""Load of exact shape, by hand: so many connections, requests of just this size, the next one when the answer is in.

It takes no notice of throttle_time_ms (unless it is told to obey, as clients do), so that what limits it is the mute,
and it notes each throttle time it is told.
The same load against a broker's own quota and through the proxy is comparable request by request.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final

from kafka.record import MemoryRecordsBuilder

from tests.harness.measure import Series
from tests.harness.wire import Address, Connection, frame

PRODUCE: Final = 0
PRODUCE_VERSION: Final = 7  # throttle_time_ms last; KIP-219 since 6
FETCH: Final = 1
FETCH_VERSION: Final = 11  # throttle_time_ms first; KIP-219 since 8
ANSWER_TIMEOUT_S: Final = 60.0
TIMESTAMP_MS: Final = int(time.time() * 1000)  # of every record: one batch is as the other, and none is old


@dataclass(frozen=True, slots=True)
class Answer:
    at_s: float
    charged_bytes: int
    throttle_ms: int


@dataclass(slots=True)
class Load:
    """What one load saw, over all its connections; in order of time within each."""

    connections: list[list[Answer]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def series(self) -> Series:
        total = 0
        series = Series()
        for answer in sorted((a for answers in self.connections for a in answers), key=lambda a: a.at_s):
            total += answer.charged_bytes
            series.append(answer.at_s, total)
        return series

    def throttled_share(self, from_s: float, to_s: float) -> float:
        """The part of that time in which at least one connection was throttled: the union of all mutes."""
        mutes = sorted(
            (max(answer.at_s, from_s), min(answer.at_s + answer.throttle_ms / 1000, to_s))
            for answers in self.connections
            for answer in answers
            if answer.throttle_ms > 0
        )
        return _union_s(mutes) / (to_s - from_s)

    def asking_share(self, from_s: float, to_s: float) -> float:
        """The part of that time which a connection spends on requests that nothing holds: on a busy machine more.

        Each is taken to last as long as the median of those that follow an answer without a throttle, so that a few
        which are held and not told count for no more than the others.
        """
        took_s = [
            later.at_s - earlier.at_s
            for answers in self.connections
            for earlier, later in pairwise(answers)
            if earlier.throttle_ms <= 0 and from_s <= later.at_s < to_s
        ]
        if not took_s:
            return 0.0
        return median(took_s) * len(took_s) / len(self.connections) / (to_s - from_s)


def run_loads(loads: Iterable["Shape"], duration_s: float) -> list[Load]:
    """All at the same time; returns when the time is over and every answer is in."""
    started, threads = start_loads(loads, duration_s)
    for thread in threads:
        thread.join(duration_s + ANSWER_TIMEOUT_S)
    return started


def start_loads(loads: Iterable["Shape"], duration_s: float) -> tuple[list[Load], list[threading.Thread]]:
    """The same, without waiting; the loads grow."""
    started = [(shape, Load()) for shape in loads]
    end_s = time.monotonic() + duration_s
    threads = [
        threading.Thread(target=_drive, args=(shape, load, answers, end_s), daemon=True)
        for shape, load in started
        for answers in _lists(load, shape.connections)
    ]
    for thread in threads:
        thread.start()
    return [load for _, load in started], threads


@dataclass(frozen=True, slots=True)
class Shape:
    """One load: `request` again and again on each connection."""

    address: Address
    request: bytes
    connections: int = 1
    log_in: Callable[[Connection], object] = lambda _: None
    obeys: bool = False
    """Whether it waits for as long as throttle_time_ms says before it asks again."""

    def answer(self, response: bytes, at_s: float) -> Answer:
        """What the response says: Produce is charged by request (its frame without the size), Fetch by response.

        RefusedError where it says that its one partition was not served.
        """
        if struct.unpack_from(">h", self.request, 4)[0] == PRODUCE:
            _refuse_error(response, 12)
            return Answer(at_s, len(self.request) - 4, struct.unpack(">i", response[-4:])[0])
        _refuse_error(response, 22)
        return Answer(at_s, len(response) - 4, struct.unpack_from(">i", response, 8)[0])


class RefusedError(Exception):
    """A broker's answer that says an error."""


def produce_request(topic: str, client_id: str, records_bytes: int, partition: int = 0, acks: int = 1) -> bytes:
    """Produce v7, one batch of one record: `records_bytes` in all."""
    records = record_batch(records_bytes)
    name = topic.encode()
    body = (
        struct.pack(">hhii", -1, acks, 30_000, 1)  # transactional_id null, acks, timeout_ms, one topic
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iii", 1, partition, len(records))
        + records
    )
    return frame(PRODUCE, PRODUCE_VERSION, 1, client_id, body)


def fetch_request(topic: str, client_id: str, partition_bytes: int, version: int = FETCH_VERSION) -> bytes:
    """Fetch v3 to v11 without a session, always from offset 0."""
    name = topic.encode()
    since = {3: struct.pack(">i", 1 << 26), 4: b"\0", 7: struct.pack(">ii", 0, -1)}  # max bytes, isolation, no session
    epoch = struct.pack(">i", -1) if version >= 9 else b""
    log_start = struct.pack(">q", -1) if version >= 5 else b""
    body = (
        struct.pack(">iii", -1, 500, 1)  # a consumer, max_wait_ms, min_bytes
        + b"".join(field for first, field in since.items() if version >= first)
        + struct.pack(">ih", 1, len(name))
        + name
        + struct.pack(">ii", 1, 0)
        + epoch
        + struct.pack(">q", 0)
        + log_start
        + struct.pack(">i", partition_bytes)
        + (struct.pack(">i", 0) if version >= 7 else b"")  # nothing forgotten
        + (struct.pack(">h", 0) if version >= 11 else b"")  # no rack
    )
    return frame(FETCH, version, 1, client_id, body)


def record_batch(size: int) -> bytes:
    """One uncompressed batch of format v2 that holds one record, of just `size` bytes (some hundred at the least)."""
    overhead = len(_batch_of(size)) - size
    return _batch_of(size - overhead)


def _batch_of(value_bytes: int) -> bytes:
    builder: Any = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 30)
    builder.append(timestamp=TIMESTAMP_MS, key=None, value=bytes(value_bytes))
    builder.close()
    return bytes(builder.buffer())


def _drive(shape: Shape, load: Load, answers: list[Answer], end_s: float) -> None:
    try:
        with Connection(shape.address, ANSWER_TIMEOUT_S) as connection:
            shape.log_in(connection)
            while time.monotonic() < end_s:
                response = connection.exchange(shape.request)
                answer = shape.answer(response, time.monotonic())
                answers.append(answer)
                if shape.obeys:
                    time.sleep(max(0.0, min(answer.throttle_ms / 1000, end_s - time.monotonic())))
    except (OSError, RefusedError) as error:
        load.errors.append(repr(error))


def _refuse_error(response: bytes, name_at: int) -> None:
    """By the error code of the one partition: behind the topic's name, a count and the partition's index.

    A broker that throttles a Fetch by its own quota names no topic at all.
    """
    if struct.unpack_from(">i", response, name_at - 4)[0] == 0:
        return
    (length,) = struct.unpack_from(">h", response, name_at)
    (code,) = struct.unpack_from(">h", response, name_at + 2 + length + 8)
    if code:
        raise RefusedError(f"error code {code} for {response[name_at + 2 : name_at + 2 + length].decode()}")


def _lists(load: Load, count: int) -> list[list[Answer]]:
    load.connections = [[] for _ in range(count)]
    return load.connections


def _union_s(intervals: list[tuple[float, float]]) -> float:
    """The length covered by intervals that are sorted by their start."""
    covered = 0.0
    reached = float("-inf")
    for start, end in intervals:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
