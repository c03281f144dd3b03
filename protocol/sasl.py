"""Fields of SaslHandshake and SaslAuthenticate: mechanism, tokens, error code, session lifetime (KIP-368).

The frames are small and complete, size included. Every function raises ProtocolError for one that ends too early; no
message quotes its content.
"""

import struct
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.headers import request_body_offset
from protocol.locator import response_body_offset
from protocol.table import ApiSpec
from protocol.varint import decode_varint

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
ILLEGAL_SASL_STATE: Final = 34

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class SaslAnswer(NamedTuple):
    """The response to SaslAuthenticate."""

    error_code: int
    token: bytes
    session_lifetime_ms: int
    """How long the authentication is valid; 0: as long as the connection."""


def handshake_mechanism(spec: ApiSpec, frame: bytes) -> str:
    """Return the mechanism in a SaslHandshake request."""
    try:
        begin, end = _string(frame, _request_body(spec, frame))
    except (IndexError, struct.error):
        raise _short(spec, "request", frame) from None
    return frame[begin:end].decode("utf-8", "replace")


def handshake_error(spec: ApiSpec, frame: bytes) -> int:
    """Return the error code of a SaslHandshake response."""
    try:
        code: int = _INT16.unpack_from(frame, response_body_offset(spec, frame, 0))[0]
    except (IndexError, struct.error):
        raise _short(spec, "response", frame) from None
    return code


def authenticate_token(spec: ApiSpec, frame: bytes) -> bytes:
    """Return the token in a SaslAuthenticate request."""
    try:
        begin, end = _bytes(frame, _request_body(spec, frame), flexible=spec.flexible)
    except (IndexError, struct.error):
        raise _short(spec, "request", frame) from None
    return frame[begin:end]


def authenticate_answer(spec: ApiSpec, frame: bytes) -> SaslAnswer:
    """Read a SaslAuthenticate response, without its error message."""
    try:
        offset = response_body_offset(spec, frame, 0)
        code: int = _INT16.unpack_from(frame, offset)[0]
        offset = _after_nullable_string(frame, offset + 2, flexible=spec.flexible)
        begin, end = _bytes(frame, offset, flexible=spec.flexible)
        lifetime_ms: int = _INT64.unpack_from(frame, end)[0] if spec.api_version >= 1 else 0
    except (IndexError, struct.error):
        raise _short(spec, "response", frame) from None
    return SaslAnswer(code, frame[begin:end], lifetime_ms)


def raw_token_end(data: bytes, limit: int) -> int:
    """Return the end of the raw token (int32 size, no header) at the start of ``data``.

    It may be beyond ``data``; while the size itself is incomplete, the end of the size is returned. Raises
    ProtocolError for a size below 0 or above ``limit``.
    """
    if len(data) < _INT32.size:
        return _INT32.size
    size: int = _INT32.unpack_from(data)[0]
    if not 0 <= size <= limit:
        raise ProtocolError(Cause.FRAME_TOO_LARGE, f"raw SASL token of {size} bytes, the limit is {limit}")
    return _INT32.size + size


def _request_body(spec: ApiSpec, frame: bytes) -> int:
    return request_body_offset(spec, frame, 0, len(frame))


def _string(frame: bytes, offset: int) -> tuple[int, int]:
    """Return the begin and end of the string at ``offset``. Raises IndexError if it is null or incomplete."""
    begin = offset + 2
    return begin, _end(frame, begin, _INT16.unpack_from(frame, offset)[0])


def _bytes(frame: bytes, offset: int, *, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, begin = decode_varint(frame, offset)
        return begin, _end(frame, begin, length - 1)
    begin = offset + 4
    return begin, _end(frame, begin, _INT32.unpack_from(frame, offset)[0])


def _after_nullable_string(frame: bytes, offset: int, *, flexible: bool) -> int:
    if flexible:
        length, offset = decode_varint(frame, offset)
        return offset + max(length - 1, 0)
    size: int = _INT16.unpack_from(frame, offset)[0]
    return offset + 2 + max(size, 0)


def _end(frame: bytes, begin: int, length: int) -> int:
    if length < 0 or begin + length > len(frame):
        raise IndexError(begin)
    return begin + length


def _short(spec: ApiSpec, what: str, frame: bytes) -> ProtocolError:
    return ProtocolError(Cause.BAD_BODY, f"{spec} {what} of {len(frame)} bytes ends too early, or lacks its bytes")
