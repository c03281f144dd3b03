"""The group protocol as the proxy speaks it, against the API table and an independent codec's fields."""

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import groups
from protocol.errors import ProtocolError
from protocol.headers import request_body_offset
from protocol.requests import Request

REQUESTS = [
    groups.find_coordinator("g"),
    groups.join_group("g", "m-1", session_ms=6000, protocol_type="sluice", protocols={"owners-1": b"me", "x": b""}),
    groups.sync_group("g", 3, "m-1", {"m-1": b"map", "m-2": b"map"}),
    groups.heartbeat("g", 3, "m-1"),
    groups.leave_group("g", "m-1"),
]


def text(said: str) -> bytes:
    return pack(">h", len(said)) + said.encode()


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each.spec.name)
def test_each_request_is_a_version_that_clients_may_send(request_: Request) -> None:
    frame = request_.frame("sluice", 1)
    assert request_body_offset(request_.spec, frame, 0, len(frame)) == len(frame) - len(request_.body)
    assert request_.spec.advertised


def test_group_requests_encode_members_and_assignments() -> None:
    assert REQUESTS[1].body == (
        text("g") + pack(">ii", 6000, 6000) + text("m-1") + text("sluice") + pack(">i", 2)
        + text("owners-1") + pack(">i", 2) + b"me" + text("x") + pack(">i", 0)
    )  # fmt: skip
    assert REQUESTS[2].body == (
        text("g") + pack(">i", 3) + text("m-1") + pack(">i", 2)
        + text("m-1") + pack(">i", 3) + b"map" + text("m-2") + pack(">i", 3) + b"map"
    )  # fmt: skip
    assert REQUESTS[3].body == text("g") + pack(">i", 3) + text("m-1")


def answer(body: bytes) -> bytes:
    return pack(">ii", len(body) + 4, 1) + body


JOINED = (
    pack(">ihi", 0, 0, 7)
    + text("owners-1")
    + text("m-1")
    + text("m-2")
    + pack(">i", 1)
    + text("m-1")
    + pack(">i", 2)
    + b"me"
)


def test_group_responses_decode_members_and_errors() -> None:
    found = groups.read_joined(answer(JOINED))
    assert found == groups.Joined(0, 7, "m-1", "m-2", {"m-1": b"me"})
    coordinator = pack(">ihhi", 0, 0, -1, 5) + text("host") + pack(">i", 9092)
    assert groups.read_coordinator(answer(coordinator)) == groups.Coordinator(0, "host", 9092)
    assert groups.read_synced(answer(pack(">ihi", 0, 27, 3) + b"map")) == groups.Synced(27, b"map")
    assert groups.read_error(answer(pack(">ih", 0, 25))) == groups.GroupError.UNKNOWN_MEMBER_ID


@given(st.binary(max_size=80), st.integers(0, len(JOINED) - 1))
def test_any_bytes_are_read_or_refused(noise: bytes, end: int) -> None:
    for data in (noise, JOINED[:end]):
        for read in (groups.read_joined, groups.read_coordinator, groups.read_synced, groups.read_error):
            with suppress(ProtocolError):
                read(answer(data))
