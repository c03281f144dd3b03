"""Requests of every kind that request_percentage is measured with, and a load that sends one of them all the time."""

import math
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.harness.load import TIMESTAMP_MS
from tests.harness.wire import Address, Connection, frame

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ANSWER_TIMEOUT_S: Final = 60.0
_THROTTLE_LAST: Final = frozenset((0,))
"""Keys of APIs whose answers end with throttle_time_ms, in the versions sent here; all others begin with it."""


@dataclass
class Storm:
    """One request again and again on each of some connections; what was told, and when."""

    address: Address
    request: bytes | Callable[[int], bytes]
    """The same on each, or by the number of the connection."""
    connections: int = 1
    pause_s: float = 0.0
    told: list[tuple[float, int]] = field(default_factory=list)
    """Moments of answers, and their throttle times."""
    errors: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    """The longest that a request took, beside the first of each connection."""

    @property
    def was_throttled(self) -> bool:
        return any(throttle_ms for _, throttle_ms in self.told)

    def start(self, seconds: float) -> list[threading.Thread]:
        end_s = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._drive, args=(number, end_s), daemon=True)
            for number in range(self.connections)
        ]
        for thread in threads:
            thread.start()
        return threads

    def after(self, request: bytes, answer: bytes) -> bytes:
        """Return the request that follows."""
        return request

    def _drive(self, number: int, end_s: float) -> None:
        request = self.request if isinstance(self.request, bytes) else self.request(number)
        last = struct.unpack_from(">h", request, 4)[0] in _THROTTLE_LAST
        try:
            with Connection(self.address, ANSWER_TIMEOUT_S) as connection:
                asked_s = math.inf
                while time.monotonic() < end_s:
                    answer = connection.exchange(request)
                    throttle_ms = struct.unpack_from(">i", answer, len(answer) - 4 if last else 8)[0]
                    now_s = time.monotonic()
                    self.told.append((now_s, throttle_ms))
                    self.longest_s = max(self.longest_s, now_s - asked_s - self.pause_s)
                    asked_s = now_s
                    request = self.after(request, answer)
                    time.sleep(self.pause_s)
        except OSError as error:
            self.errors.append(repr(error))


class Polls(Storm):
    """Fetches of a session: the first one names the partitions, and the others none."""

    def after(self, request: bytes, answer: bytes) -> bytes:
        if struct.unpack_from(">h", answer, 12)[0]:
            raise ConnectionError("the broker has dropped the session")
        (name_bytes,) = struct.unpack_from(">h", request, 12)
        client_id = request[14 : 14 + name_bytes].decode()
        session, epoch = struct.unpack_from(">ii", request, 14 + name_bytes + 17)
        session = session or struct.unpack_from(">i", answer, 14)[0]
        return fetch(client_id, "", 0, partitions=0, session=session, epoch=epoch + 1)


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def metadata(client_id: str, topics: Sequence[str] | None = None) -> bytes:
    """Metadata v4, of all topics where none are named."""
    count = -1 if topics is None else len(topics)
    return frame(3, 4, 1, client_id, struct.pack(">i", count) + b"".join(map(text, topics or ())) + b"\0")


def heartbeat(client_id: str) -> bytes:
    """Heartbeat v3 of a group that there is not."""
    return frame(12, 3, 1, client_id, b"\0\1g\0\0\0\1\0\1m\xff\xff")


def list_offsets(client_id: str, topic: str, partitions: int = 1) -> bytes:
    """ListOffsets v3 of the ends of the first partitions."""
    body = struct.pack(">ibi", -1, 0, 1) + text(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions))
    return frame(2, 3, 1, client_id, body)


def offset_commit(client_id: str, topic: str) -> bytes:
    """OffsetCommit v4 of one partition, by a group without members."""
    body = text(f"group-of-{client_id}") + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">iiq", 1, 0, 1) + struct.pack(">h", -1)
    return frame(8, 4, 1, client_id, body)


def fetch(
    client_id: str,
    topic: str,
    partition_bytes: int,
    *,
    offset: int = 0,
    partitions: int = 1,
    epoch: int = -1,
    max_wait_ms: int = 0,
    session: int = 0,
) -> bytes:
    """Fetch v11, with fetch.max.wait.ms=0 if not told otherwise; ``epoch`` 0 asks for a session, -1 for none."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, 1 << 26, 0, session, epoch)
    body += struct.pack(">i", 1 if partitions else 0)
    if partitions:
        body += text(topic) + struct.pack(">i", partitions)
        for partition in range(partitions):
            body += struct.pack(">iiqqi", partition, -1, offset, -1, partition_bytes)
    return frame(1, 11, 1, client_id, body + struct.pack(">ih", 0, 0))


def produce(client_id: str, topic: str, records: bytes, *, acks: int = 1, partition: int = 0) -> bytes:
    """Produce v7 of one batch, without a transactional id."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + text(topic) + struct.pack(">iii", 1, partition, len(records))
    return frame(0, 7, 1, client_id, body + records)


def batch(count: int, value_bytes: int, codec: str = "none") -> bytes:
    """One batch of format v2: so many records of text that compresses to a third or so, all a bit different."""
    builder: Any = DefaultRecordBatchBuilder(2, CODECS[codec], 0, -1, -1, -1, 1 << 30)
    for number in range(count):
        builder.append(number, timestamp=TIMESTAMP_MS, key=None, value=_value(number, value_bytes), headers=[])
    return bytes(builder.build())


def _value(number: int, size: int) -> bytes:
    words = (f'{{"user": {hash((number, word)) % 100_000_000}, "page": "/shop/item/{word}"}}' for word in range(size))
    value = b""
    while len(value) < size:
        value += next(words).encode()
    return value[:size]
