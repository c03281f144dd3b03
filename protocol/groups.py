"""Kafka's classic group protocol, as the proxy itself speaks it: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each API has its last version without tagged fields here; brokers know them since 2.2.
"""

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from protocol.answers import Fields
from protocol.requests import Request

FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_OF_A_GROUP: Final = 0


class GroupError(IntEnum):
    """The errors of these APIs (``org.apache.kafka.common.protocol.Errors``); any other number is as it came."""

    NONE = 0
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    GROUP_AUTHORIZATION_FAILED = 30
    GROUP_ID_NOT_FOUND = 69
    """The group is of another type (KIP-848, KIP-932, KIP-1071)."""
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81


class Coordinator(NamedTuple):
    """The response to FindCoordinator."""

    error_code: int
    host: str
    port: int


class Joined(NamedTuple):
    """The response to JoinGroup."""

    error_code: int
    generation: int
    leader: str
    member_id: str
    members: Mapping[str, bytes]
    """For the leader: what each member said of itself, by member id."""


class Synced(NamedTuple):
    """The response to SyncGroup."""

    error_code: int
    assignment: bytes


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def find_coordinator(group: str) -> Request:
    """FindCoordinator v1."""
    return Request(FIND_COORDINATOR, 1, _text(group) + _INT8.pack(_OF_A_GROUP))


def join_group(
    group: str, member_id: str, *, session_ms: int, protocol_type: str, protocols: Mapping[str, bytes]
) -> Request:
    """JoinGroup v4; ``protocols``: what this member says of itself, by protocol name, best first."""
    offered = b"".join(_text(name) + _bytes(said) for name, said in protocols.items())
    head = _text(group) + 2 * _INT32.pack(session_ms) + _text(member_id) + _text(protocol_type)
    return Request(JOIN_GROUP, 4, head + _INT32.pack(len(protocols)) + offered)


def sync_group(group: str, generation: int, member_id: str, assignments: Mapping[str, bytes]) -> Request:
    """SyncGroup v1; ``assignments`` of the leader, by member id."""
    given = b"".join(_text(member) + _bytes(assigned) for member, assigned in assignments.items())
    head = _text(group) + _INT32.pack(generation) + _text(member_id)
    return Request(SYNC_GROUP, 1, head + _INT32.pack(len(assignments)) + given)


def heartbeat(group: str, generation: int, member_id: str) -> Request:
    """Heartbeat v1."""
    return Request(HEARTBEAT, 1, _text(group) + _INT32.pack(generation) + _text(member_id))


def leave_group(group: str, member_id: str) -> Request:
    """LeaveGroup v1."""
    return Request(LEAVE_GROUP, 1, _text(group) + _text(member_id))


def read_coordinator(frame: bytes) -> Coordinator:
    """Read a FindCoordinator response, v1. Raises ProtocolError."""
    fields = Fields(frame)
    fields.skip(4)
    error_code = fields.number(_INT16)
    fields.text()
    fields.skip(4)
    return Coordinator(error_code, fields.text(), fields.number(_INT32))


def read_joined(frame: bytes) -> Joined:
    """Read a JoinGroup response, v2 to v4. Raises ProtocolError."""
    fields = Fields(frame)
    fields.skip(4)
    error_code, generation = fields.number(_INT16), fields.number(_INT32)
    fields.text()
    leader, member_id = fields.text(), fields.text()
    members = {fields.text(): fields.sized(fields.number(_INT32)) for _ in fields.items()}
    return Joined(error_code, generation, leader, member_id, members)


def read_synced(frame: bytes) -> Synced:
    """Read a SyncGroup response, v1. Raises ProtocolError."""
    fields = Fields(frame)
    fields.skip(4)
    return Synced(fields.number(_INT16), fields.sized(fields.number(_INT32)))


def read_error(frame: bytes) -> int:
    """Read the error code of a Heartbeat or LeaveGroup response, v1. Raises ProtocolError."""
    fields = Fields(frame)
    fields.skip(4)
    return fields.number(_INT16)
