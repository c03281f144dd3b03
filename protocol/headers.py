"""Request headers: the offset of the body, the client-id, and the few fields of Produce and Fetch that matter.

All functions read a frame that may not be complete in ``data`` yet: ``start`` is the offset of its size, ``end`` of the
byte after it, which may be beyond ``len(data)``. They return MORE or None if more bytes are needed, and raise
ProtocolError if the frame is too short.
"""

from struct import Struct
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.table import ApiSpec
from protocol.varint import MAX_TAGS, VarintError, decode_varint, skip_tags

FETCH: Final = 1
"""The api key. (ShareFetch has the same limits.)"""

MAX_HEADER_BYTES: Final = 64 * 1024
"""The most bytes of a frame that this module reads: client-ids have at most 32,767 bytes, real tag sections one."""

_INT16: Final = Struct(">h")
_ID_LENGTH: Final = 12  # after size, api key, api version and correlation id: the end of header v0
_ID: Final = 14

_MAX_SHIFT: Final = 28
"""Of the fifth and last byte of a varint."""

MORE: Final = -1
"""An offset that is not known yet: more of the frame is needed."""


def request_body_offset(spec: ApiSpec, data: bytes, start: int, end: int) -> int:
    """Return the offset of the request's body, or MORE if the header is not complete in ``data``.

    Raises ProtocolError if the frame ends inside the header, or the header is larger than MAX_HEADER_BYTES.
    """
    version = spec.request_header_version
    if version == 0:
        return start + _ID_LENGTH
    offset = start + _ID
    if offset > end:
        raise _short(Cause.BAD_HEADER, "client_id", start, end)
    if offset > len(data):
        return MORE
    length = _INT16.unpack_from(data, start + _ID_LENGTH)[0]
    if length > 0:  # every negative length is null to the broker, and null is "" (RequestHeader.parse)
        offset += length
        if offset > end:
            raise _short(Cause.BAD_HEADER, "client_id", start, end)
    if version == 1:
        return offset if offset <= len(data) else MORE
    if offset < end and offset < len(data) and data[offset] == 0:
        return offset + 1
    return _skip_tags(data, offset, start, end)


class HeaderRest:
    """The rest of a request's header, behind its first 14 bytes, passed over as it streams by: nothing of it is kept,
    and each byte is looked at once.
    """

    __slots__ = ("_is_count", "_numbers", "_shift", "_skip", "_value", "spec")

    def __init__(self, spec: ApiSpec, client_id_bytes: int) -> None:
        self.spec = spec
        self._skip = max(client_id_bytes, 0)
        self._numbers = 1 if spec.request_header_version == 2 else 0
        """Varints that are still to come: the number of tags, and for each tag its number and its size."""
        self._is_count = True
        self._value = self._shift = 0
        """Of the varint under way."""

    def body_offset(self, data: bytes, start: int, stop: int) -> int:
        """Take data[start:stop], the next bytes; return the offset of the body, or MORE if all were of the header.

        Raises ProtocolError as ``request_body_offset``, but for a frame that ends inside the header.
        """
        while True:
            passed = min(self._skip, stop - start)
            self._skip -= passed
            start += passed
            if not self._skip and not self._numbers:
                return start
            if start == stop:
                return MORE
            byte = data[start]
            start += 1
            self._value |= (byte & 0x7F) << self._shift
            self._shift += 7
            if byte < 0x80:
                self._take(self._value & 0xFFFFFFFF)
            elif self._shift > _MAX_SHIFT:
                raise ProtocolError(Cause.BAD_HEADER, "header tags: a varint of more than 5 bytes")

    def _take(self, value: int) -> None:
        self._value = self._shift = 0
        self._numbers -= 1
        if self._is_count:
            if value > MAX_TAGS:
                raise _too_many_tags()
            self._is_count, self._numbers = False, 2 * value
        elif self._numbers % 2 == 0:
            self._skip = value


def client_id(spec: ApiSpec, data: bytes, start: int) -> str:
    """Return the client-id of a request whose header is complete; "" for null, as in the broker.

    Invalid UTF-8 becomes U+FFFD, as in the broker.
    """
    if spec.request_header_version == 0:
        return ""
    length = _INT16.unpack_from(data, start + _ID_LENGTH)[0]
    begin = start + _ID
    return data[begin : begin + length].decode("utf-8", "replace") if length > 0 else ""


def produce_acks(spec: ApiSpec, data: bytes, body_offset: int, end: int) -> int | None:
    """Return acks of a Produce request, or None if it is not in ``data`` yet. With 0 there is no response."""
    offset = produce_acks_offset(spec, data, body_offset, end)
    if offset == MORE:
        return None
    acks: int = _INT16.unpack_from(data, offset)[0]
    return acks


def produce_acks_offset(spec: ApiSpec, data: bytes, body_offset: int, end: int) -> int:
    """Return the offset of acks in a Produce request, or MORE if it is not in ``data`` yet.

    It follows transactional_id, a nullable string, from v3 on. Raises ProtocolError if the frame is too short for it.
    """
    offset = body_offset
    if spec.request_header_version == 2:
        offset = _skip_compact_string(data, offset)
    elif spec.api_version >= 3:
        offset += 2
        if offset <= len(data):
            offset += max(_INT16.unpack_from(data, body_offset)[0], 0)
    if offset + 2 > end:
        raise _short(Cause.BAD_BODY, "acks", body_offset, end)
    if offset - body_offset > MAX_HEADER_BYTES:
        raise _too_large()
    return offset if offset + 2 <= len(data) else MORE


def has_fetch_limits(spec: ApiSpec) -> bool:
    """Whether this version of Fetch or ShareFetch has max_bytes."""
    return spec.api_key != FETCH or spec.api_version >= 3


def fetch_limits_offset(spec: ApiSpec, data: bytes, body_offset: int, end: int) -> int:
    """Return the offset of min_bytes and max_bytes, two int32, in a Fetch or ShareFetch request that has them.

    MORE if they are not in ``data`` yet. They follow replica_id (until KIP-903 dropped it in v15) and max_wait_ms; in a
    ShareFetch group_id, member_id, the epoch and max_wait_ms. Raises ProtocolError if the frame is too short.
    """
    if spec.api_key == FETCH:
        offset = body_offset + (8 if spec.api_version < 15 else 4)
    else:
        offset = _skip_compact_string(data, _skip_compact_string(data, body_offset)) + 8
    if offset + 8 > end:
        raise _short(Cause.BAD_BODY, "max_bytes", body_offset, end)
    if offset - body_offset > MAX_HEADER_BYTES:
        raise _too_large()
    return offset if offset + 8 <= len(data) else MORE


def _skip_compact_string(data: bytes, offset: int) -> int:
    """Return the offset after a nullable compact string, len(data) if not even its length is there."""
    if offset >= len(data):
        return len(data)
    length = data[offset]
    if length < 0x80:
        return offset + (length or 1)
    try:
        length, offset = decode_varint(data, offset)
    except IndexError:
        return len(data)
    return offset + max(length - 1, 0)


def _skip_tags(data: bytes, offset: int, start: int, end: int) -> int:
    """Return the offset after the tag section at ``offset``, or MORE if more bytes are needed."""
    limit = min(end, len(data), start + MAX_HEADER_BYTES)
    section = data[offset:limit]
    try:
        if decode_varint(section, 0)[0] > MAX_TAGS:
            raise _too_many_tags()
        return offset + skip_tags(section, 0)
    except VarintError as error:
        raise ProtocolError(Cause.BAD_HEADER, f"header tags: {error}") from None
    except IndexError:
        if limit == end:
            raise _short(Cause.BAD_HEADER, "header tags", start, end) from None
        if limit < len(data):
            raise _too_large() from None
        return MORE


def _short(cause: Cause, field: str, start: int, end: int) -> ProtocolError:
    return ProtocolError(cause, f"request of {end - start} bytes ends inside {field}")


def _too_many_tags() -> ProtocolError:
    return ProtocolError(Cause.HEADER_TOO_LARGE, f"request header of more than {MAX_TAGS} tagged fields")


def _too_large() -> ProtocolError:
    return ProtocolError(Cause.HEADER_TOO_LARGE, f"request header of more than {MAX_HEADER_BYTES} bytes")
