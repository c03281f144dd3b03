"""ApiVersions: the versions offered to clients (KIP-35, KIP-511)."""

import struct
from collections.abc import Mapping
from struct import Struct
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.locator import response_body_offset
from protocol.overlay import API_VERSIONS, FETCH, PRODUCE
from protocol.table import SPECS, ApiSpec
from protocol.varint import decode_varint, encode_varint, skip_tags

_INT32: Final = Struct(">i")
_RANGE: Final = Struct(">hhh")
"""api key, lowest version, highest version."""
_UNSUPPORTED_VERSION: Final = 35
_UNSUPPORTED_VERSION_ANSWER: Final = Struct(">iihihhh")


def advertised_limits(
    *, fetch_max_version: int | None = None, produce_max_version: int | None = None
) -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version that clients may be offered, by api key.

    ``produce_max_version``: from 13 on a Produce request has topic ids instead of names.
    """
    limits: dict[int, tuple[int, int]] = {}
    for spec in SPECS.values():
        key, version = spec.api_key, spec.api_version
        most = {FETCH: fetch_max_version, PRODUCE: produce_max_version}.get(key)
        if spec.advertised and (most is None or version <= most):
            lowest, highest = limits.get(key, (version, version))
            limits[key] = (min(lowest, version), max(highest, version))
    return limits


def unsupported_version_answer(correlation_id: int, max_version: int) -> bytes:
    """Return the answer to an ApiVersions request newer than ``max_version``: error 35 in v0 layout, with the supported
    versions.
    """
    size = _UNSUPPORTED_VERSION_ANSWER.size - 4
    return _UNSUPPORTED_VERSION_ANSWER.pack(size, correlation_id, _UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, max_version)


def intersect(frame: bytes, spec: ApiSpec, limits: Mapping[int, tuple[int, int]]) -> bytes:
    """Return an ApiVersions response reduced to ``limits``; everything else is kept.

    An API that is not in ``limits``, or has no version left, is dropped. Raises ProtocolError.
    """
    try:
        body = response_body_offset(spec, frame, 0)
        error_code = int.from_bytes(frame[body : body + 2], "big")
        # Error 35 has v0 layout, whatever the version of the request (KIP-511).
        flexible = spec.flexible and error_code != _UNSUPPORTED_VERSION
        start = body + 2
        count, position = _read_count(frame, start, flexible)
        first = position
        kept: list[bytes] = []
        for _ in range(count):
            entry = position
            position += _RANGE.size
            if flexible:
                position = skip_tags(frame, position)
            kept += _narrowed(frame[entry:position], limits)
    except (IndexError, struct.error):
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {len(frame)} bytes ends too early") from None
    written = frame[start:first] if len(kept) == count else _write_count(len(kept), flexible)
    payload = b"".join((frame[4:start], written, *kept, frame[position:]))
    return _INT32.pack(len(payload)) + payload


def _narrowed(entry: bytes, limits: Mapping[int, tuple[int, int]]) -> list[bytes]:
    """Return the entry of one API with its versions limited, or nothing if none is left."""
    api_key, lowest, highest = _RANGE.unpack_from(entry)
    if api_key not in limits:
        return []
    least, most = limits[api_key]
    # librdkafka stops compressing when Produce's minimum is raised (KAFKA-18659).
    lowest = lowest if api_key == PRODUCE else max(lowest, least)
    highest = min(highest, most)
    return [_RANGE.pack(api_key, lowest, highest) + entry[_RANGE.size :]] if lowest <= highest else []


def _read_count(frame: bytes, offset: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, offset = decode_varint(frame, offset)
        count -= 1
    else:
        count, offset = _INT32.unpack_from(frame, offset)[0], offset + 4
    if count < 0:
        raise ProtocolError(Cause.BAD_BODY, "ApiVersions response without a list of APIs")
    return count, offset


def _write_count(count: int, flexible: bool) -> bytes:
    return encode_varint(count + 1) if flexible else _INT32.pack(count)
