"""Locating and replacing the few bytes of a response that Sluice may change.

Locate, patch, splice: a response is never decoded. Only throttle_time_ms, the brokers' hosts and ports, and the
lengths, sizes and counts that depend on them change; all other bytes are kept: records, unknown tagged fields, overlong
varints.
"""

import struct
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from protocol.compile import Endpoint, Tag, Walk, compile_walk
from protocol.errors import Cause, ProtocolError
from protocol.headers import MORE
from protocol.overlay import API_VERSIONS
from protocol.splicer import Splicer
from protocol.table import ABSENT, ApiSpec
from protocol.varint import skip_tags

__all__ = [
    "Endpoint",
    "Located",
    "locate",
    "patch_throttle",
    "read_throttle",
    "response_body_offset",
    "rewrite",
    "splice",
    "throttle_position",
]

_INT32: Final = Struct(">i")
_HEADER_BYTES: Final = 8  # size, correlation id
_UNSUPPORTED_VERSION: Final = b"\x00\x23"

_walks: dict[int, Walk] = {}
"""Compiled walks by ApiSpec number, compiled at the first response of a version."""


class Located(NamedTuple):
    """The bytes of a response that Sluice may change."""

    throttle_offset: int
    """The offset of throttle_time_ms in the frame; -1 if the response has none."""
    endpoints: list[Endpoint]
    tags: list[Tag]
    """Tagged fields that contain endpoints."""
    flexible: bool


def locate(spec: ApiSpec, frame: bytes) -> Located:
    """Locate the changeable bytes of a whole response frame, size included. Raises ProtocolError."""
    endpoints: list[Endpoint] = []
    tags: list[Tag] = []
    try:
        body = response_body_offset(spec, frame, 0)
        # Error 35 has v0 layout, whatever the version of the request (KIP-511).
        if spec.api_key == API_VERSIONS and frame[body : body + 2] == _UNSUPPORTED_VERSION:
            return Located(ABSENT, endpoints, tags, flexible=False)
        walk = _walks.get(spec.number)
        if walk is None:
            walk = _walks[spec.number] = compile_walk(spec.response_layout, spec.endpoint_path)
        throttle = walk(frame, body, endpoints, tags)
    except (IndexError, struct.error):
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {len(frame)} bytes ends too early") from None
    return Located(throttle, endpoints, tags, spec.flexible)


def response_body_offset(spec: ApiSpec, data: bytes, start: int) -> int:
    """Return the offset of the body of the response at ``start``. Raises IndexError if its header is incomplete."""
    offset = start + _HEADER_BYTES
    if spec.response_header_version == 0:
        return offset
    return offset + 1 if data[offset] == 0 else skip_tags(data, offset)


def throttle_position(spec: ApiSpec, data: bytes, start: int, end: int) -> int:
    """Return the offset of throttle_time_ms in a response that has it at a fixed offset of its body.

    The response lies between ``start`` and ``end`` of a stream, of which ``data`` has been received. MORE if more bytes
    are needed. Raises ProtocolError if the frame is too short.
    """
    try:
        offset = response_body_offset(spec, data, start) + spec.throttle_offset
    except IndexError:
        offset = len(data)
    if offset + _INT32.size > end:
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {end - start} bytes ends before throttle_time_ms")
    return offset if offset + _INT32.size <= len(data) else MORE


def read_throttle(spec: ApiSpec, frame: bytes) -> int | None:
    """Return the throttle_time_ms of a response; None if it has none."""
    offset = locate(spec, frame).throttle_offset
    if offset < 0:
        return None
    throttle_ms: int = _INT32.unpack_from(frame, offset)[0]
    return throttle_ms


def patch_throttle(spec: ApiSpec, frame: bytes, throttle_ms: int) -> bytes:
    """Return the response with another throttle_time_ms, unchanged if it has none."""
    located = locate(spec, frame)
    return splice(frame, located._replace(endpoints=[], tags=[]), throttle_ms, {})


def rewrite(spec: ApiSpec, frame: bytes, throttle_ms: int | None, addresses: Mapping[int, tuple[bytes, int]]) -> bytes:
    """Locate and splice in one step."""
    return splice(frame, locate(spec, frame), throttle_ms, addresses)


def splice(
    frame: bytes, located: Located, throttle_ms: int | None, addresses: Mapping[int, tuple[bytes, int]]
) -> bytes:
    """Return the frame with other addresses and throttle_time_ms, and all lengths and sizes around them adjusted.

    ``addresses`` maps node ids to host and port; see ``Splicer`` for a missing one. ``throttle_ms`` None leaves it
    unchanged.
    """
    splicer = Splicer(frame, located.flexible, lambda endpoint: addresses.get(endpoint.node_id))
    splicer.take(located.endpoints, located.tags)
    if throttle_ms is not None and located.throttle_offset >= 0:
        splicer.tell(located.throttle_offset, throttle_ms)
    return splicer.finish(len(frame), len(frame) - 4)
