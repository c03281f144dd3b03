"""The proxy's own requests about topics, and those that ``sluice calibrate`` measures a broker with.

Their versions are supported by brokers since 2.4, including 4.x; CreateTopics has the same layout from v2 to v4.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from protocol.locator import response_body_offset
from protocol.messages import Message, read_message, write_message
from protocol.requests import Request
from protocol.table import SPECS, key_version

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
CREATE_TOPICS: Final = key_version(19, 4)
DELETE_TOPICS: Final = key_version(20, 3)
METADATA: Final = key_version(3, 4)


class Probe(NamedTuple):
    """A request whose responses all have the same layout."""

    name: str
    request: Request
    throttle_at: int
    """The offset of throttle_time_ms in the response frame; negative: from its end."""
    error_at: int | None
    """The offset of the single partition's error code."""

    def throttle_ms(self, response: bytes) -> int:
        return int(_INT32.unpack_from(response, self.throttle_at % len(response))[0])

    def error_code(self, response: bytes) -> int:
        """Return the partition's error; a throttled Fetch response has no partition."""
        if self.error_at is None or len(response) < self.error_at + _INT16.size:
            return 0
        return int(_INT16.unpack_from(response, self.error_at)[0])


def fetch_nothing(topic: str) -> Probe:
    """Return a Fetch of one empty partition that does not wait."""
    name = _string(topic)
    head = Struct(">iiiibiii").pack(-1, 0, 0, 1 << 20, 0, 0, -1, 1)
    partition = Struct(">iiqqi").pack(0, -1, 0, -1, 1 << 20)
    body = head + name + _INT32.pack(1) + partition + _INT32.pack(0) + _string("")
    return Probe("Fetch, nothing new", Request(1, 11, body), 8, 22 + len(name) + 4 + 4)


def produce(topic: str, records: bytes) -> Probe:
    """Return a Produce of one batch with acks=1."""
    name = _string(topic)
    body = Struct(">hhii").pack(-1, 1, 10_000, 1) + name + Struct(">iii").pack(1, 0, len(records)) + records
    return Probe(f"Produce of {len(records) // 1024} KiB", Request(0, 7, body), -4, 12 + len(name) + 4 + 4)


def all_metadata() -> Probe:
    """Return a Metadata of all topics."""
    return Probe("Metadata of all topics", Request(3, 4, b"\xff\xff\xff\xff\0"), 8, None)


def create_topic(topic: str, broker: int) -> Request:
    """Return the request for a topic of one partition on that broker."""
    assigned = [{"partition_index": 0, "broker_ids": [broker]}]
    what = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assigned, "configs": []}
    return _request(CREATE_TOPICS, {"topics": [what], "timeout_ms": 10_000, "validate_only": False})


def describe_topic(topic: str) -> Request:
    """Return a Metadata of one topic that never creates it, even with ``auto.create.topics.enable``."""
    return _request(METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})


def create_topic_with(
    topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str], version: int
) -> Request:
    """Return a CreateTopics. From version 4 on, a replication factor of -1 means the broker default (KIP-464)."""
    pairs = [{"name": name, "value": value} for name, value in configs.items()]
    what: Message = {"name": topic, "num_partitions": partitions, "replication_factor": replication_factor}
    what |= {"assignments": [], "configs": pairs}
    values = {"topics": [what], "timeout_ms": 10_000, "validate_only": False}
    return _request(key_version(CREATE_TOPICS >> 16, version), values)


def delete_topics(topics: list[str]) -> Request:
    return _request(DELETE_TOPICS, {"topic_names": topics, "timeout_ms": 10_000})


def read(number: int, response: bytes) -> Message:
    """Read the response to a probe. Raises ProtocolError."""
    spec = SPECS[number]
    body = response_body_offset(spec, response, 0)
    return read_message(f"{spec} response", spec.response_layout, response, body, len(response), 2_000_000)


def _request(number: int, values: Message) -> Request:
    return Request(number >> 16, number & 0xFFFF, write_message(SPECS[number].request_layout, values))


def _string(text: str) -> bytes:
    return _INT16.pack(len(text.encode())) + text.encode()
