"""The few bytes of a response that Sluice may change: where they are, and the frame with others in their place.

Locate, patch, splice: a response is never decoded. What is not throttle_time_ms, a broker's host and port, or a
length, size or count that changes with them, is kept byte for byte: records, unknown tagged fields, overlong varints.
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
"""By number of the ApiSpec, made when the first response of that version comes."""


class Located(NamedTuple):
    """What Sluice may change in a response."""

    throttle_offset: int
    """Of throttle_time_ms, from the first byte of the frame; -1 where the response has none."""
    endpoints: list[Endpoint]
    tags: list[Tag]
    """Tagged fields in which endpoints are."""
    flexible: bool


def locate(spec: ApiSpec, frame: bytes) -> Located:
    """Find what may be changed in a whole response frame, its size included. Raises ProtocolError."""
    endpoints: list[Endpoint] = []
    tags: list[Tag] = []
    try:
        body = response_body_offset(spec, frame, 0)
        # Error 35 is told in v0 layout, whatever was asked (KIP-511).
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
    """Return where the body of the response at ``start`` begins; IndexError if its header is not all there."""
    offset = start + _HEADER_BYTES
    if spec.response_header_version == 0:
        return offset
    return offset + 1 if data[offset] == 0 else skip_tags(data, offset)


def throttle_position(spec: ApiSpec, data: bytes, start: int, end: int) -> int:
    """Return where the throttle_time_ms of a response is that has it at a fixed offset of its body.

    The response stands between ``start`` and ``end`` of a stream of which ``data`` is what has come; MORE if more
    of it is needed. Raises ProtocolError if the frame is too short.
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
    """Return the response with another throttle_time_ms, or as it is if it has none."""
    located = locate(spec, frame)
    return splice(frame, located._replace(endpoints=[], tags=[]), throttle_ms, {})


def rewrite(spec: ApiSpec, frame: bytes, throttle_ms: int | None, addresses: Mapping[int, tuple[bytes, int]]) -> bytes:
    """Locate and splice in one step."""
    return splice(frame, locate(spec, frame), throttle_ms, addresses)


def splice(
    frame: bytes, located: Located, throttle_ms: int | None, addresses: Mapping[int, tuple[bytes, int]]
) -> bytes:
    """Return the frame with other addresses and throttle_time_ms; all lengths and sizes around them are right.

    ``addresses`` gives host and port by node id; what is done without one is said in ``Splicer``. ``throttle_ms`` None
    stays as it is too.
    """
    splicer = Splicer(frame, located.flexible, lambda endpoint: addresses.get(endpoint.node_id))
    splicer.take(located.endpoints, located.tags)
    if throttle_ms is not None and located.throttle_offset >= 0:
        splicer.tell(located.throttle_offset, throttle_ms)
    return splicer.finish(len(frame), len(frame) - 4)
