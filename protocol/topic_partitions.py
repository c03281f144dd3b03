"""The proxy's own Metadata request for partition counts, which creates no topics, and its response."""

from collections.abc import Mapping, Sequence
from typing import Final

from protocol.fields import NO_ID, Fields
from protocol.locator import response_body_offset
from protocol.mutations import Topic
from protocol.overlay import METADATA
from protocol.requests import Request
from protocol.varint import encode_varint

LONGEST_NAME: Final = 249
"""The longest topic name (Topic.MAX_NAME_LENGTH)."""

_BY_NAME: Final = 4
"""The first version that does not auto-create the requested topics (it came with KIP-204)."""
_BY_ID: Final = 12
"""The first version that requests topics by id (KIP-516); it has tagged fields."""


def which_partitions(topics: Sequence[Topic], *, by_id: bool) -> Request:
    """Return the request for topics that are all named, or all identified by id."""
    if by_id:
        asked = b"".join(topic_id + b"\x00\x00" for _, topic_id in topics)  # no name, no tagged fields
        return Request(METADATA, _BY_ID, b"\x00" + encode_varint(len(topics) + 1) + asked + b"\x00\x00\x00")
    asked = b"".join(len(name).to_bytes(2, "big") + name for name, _ in topics)
    return Request(METADATA, _BY_NAME, len(topics).to_bytes(4, "big") + asked + b"\x00")


def read_partitions(request: Request, frame: bytes) -> Mapping[Topic, int]:
    """Return the partition counts of the topics found in the response to ``request``. Raises ProtocolError."""
    spec = request.spec
    by_id = request.version == _BY_ID
    try:
        body = response_body_offset(spec, frame, 0)
    except IndexError:
        body = len(frame) + 1
    fields = Fields(f"{spec} response", frame, body, len(frame), spec.flexible)
    fields.skip(4)  # throttle_time_ms
    for _ in range(fields.counted()):
        fields.skip(4)
        fields.text()
        fields.skip(4)
        fields.string()
        fields.tags()
    fields.string()  # cluster_id
    fields.skip(4)  # controller_id
    found: dict[Topic, int] = {}
    for _ in range(fields.counted()):
        error_code = fields.int16()
        name = fields.string() or b""
        topic_id = fields.uuid() if by_id else NO_ID
        fields.skip(1)  # is_internal
        partitions = fields.counted()
        for _ in range(partitions):
            fields.skip(14 if by_id else 10)  # error_code, partition_index, leader_id, leader_epoch
            for _ in range(3 if by_id else 2):  # replicas: all, in sync, offline
                fields.skip(4 * fields.counted())
            fields.tags()
        if by_id:
            fields.skip(4)  # topic_authorized_operations
        fields.tags()
        if not error_code:
            found[(b"", topic_id) if by_id else (name, NO_ID)] = partitions
    return found
