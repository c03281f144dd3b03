"""What all Produce, or all Fetch, requests of a client begin with: read once, then recognised by one comparison."""

from typing import Final

from protocol.headers import MORE, fetch_limits_offset, has_fetch_limits, produce_acks_offset, request_body_offset
from protocol.table import ApiSpec
from proxy.session.sender import AFTER_CORRELATION_ID, MAX_KEPT_BYTES, UNREAD
from proxy.session.serving import FETCH, PRODUCE, Served

NONE: Final = 1 << 32
"""What no api key and version is, whatever bytes a client sends."""

_ACKS_BYTES, _LIMITS_BYTES = 2, 8


class RequestPrefix:
    """The bytes from the client-id's length to the first field that is read, and what followed from them.

    For Produce that field is acks, so a transactional id is in the prefix; for Fetch it is min_bytes and max_bytes.
    Equal bytes read the same, so the header of a request that begins as the last one did need not be read: on the hot
    path that is one comparison instead of three calls.
    """

    __slots__ = ("api", "beginning", "needed", "number", "width")

    def __init__(self) -> None:
        self.api: Served
        self.number = NONE
        """Of ``api``: api key << 16 | version; or NONE: the next one is read anew."""
        self.beginning = b""
        """What a request of ``api`` has from AFTER_CORRELATION_ID on if this is its prefix."""
        self.width = 0
        """Bytes from the frame's size to the field that is read, of which ``needed`` must be there."""
        self.needed = 0

    def forget(self) -> None:
        """Read the next request anew."""
        self.number = NONE

    def find(self, api: Served, chunk: bytes, position: int, end: int, body: int) -> int:
        """Return the offset of the field behind the prefix of the request at ``position``, or MORE.

        ``body`` is where its body begins, or UNREAD. Raises ProtocolError if the request ends within that field.
        """
        field = position + self.width
        if (
            self.number == api.spec.number
            and field + self.needed <= min(end, len(chunk))
            and chunk[position + AFTER_CORRELATION_ID : field] == self.beginning
        ):
            return field
        return self._read(api, chunk, position, end, body)

    def _read(self, api: Served, chunk: bytes, position: int, end: int, body: int) -> int:
        spec = api.spec
        if body == UNREAD:
            body = request_body_offset(spec, chunk, position, end)
        if body == MORE:
            return MORE
        field, needed = _first_field(api.on_request, spec, chunk, body, end)
        if field == MORE or field + needed > len(chunk):
            return MORE
        self.api = api
        begin = position + AFTER_CORRELATION_ID
        kept = field - begin <= MAX_KEPT_BYTES
        self.number = spec.number if kept else NONE
        self.beginning = chunk[begin:field] if kept else b""
        self.width = field - position
        self.needed = needed
        return field


def _first_field(on_request: int, spec: ApiSpec, chunk: bytes, body: int, end: int) -> tuple[int, int]:
    if on_request == PRODUCE:
        return produce_acks_offset(spec, chunk, body, end), _ACKS_BYTES
    if on_request == FETCH and has_fetch_limits(spec):
        return fetch_limits_offset(spec, chunk, body, end), _LIMITS_BYTES
    return body, 0
