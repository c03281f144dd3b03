"""Requests as they are found in the stream: one for the policies to judge, and those that are held."""

from collections.abc import Mapping
from typing import Final

from protocol.frames import REQUEST_HEAD, Head
from protocol.headers import MORE, fetch_limits_offset, has_fetch_limits, produce_acks_offset, request_body_offset
from protocol.table import ApiSpec
from proxy.session.decision import Need
from proxy.session.exchange import Exchange, expect
from proxy.session.serving import FETCH, FETCH_KEY, PRODUCE, Served
from proxy.usage.accounts import Account

AFTER_CORRELATION_ID: Final = 12
"""Offset of the client-id's length in a request."""
MAX_KEPT_BYTES: Final = 512
"""Limit for the beginning that a connection keeps; a longer one (a client-id may have 32 KiB) is read each time."""
ACKS_0: Final = b"\0\0"
NONE: Final = 1 << 32
"""No api key and version, whatever bytes a client sends."""

_ACKS_BYTES, _LIMITS_BYTES = 2, 8


class Request:
    """A request that begins at ``position`` of ``chunk``, and may not be there to its end."""

    __slots__ = ("api", "body", "chunk", "client_id_bytes", "correlation_id", "end", "position", "size")

    def __init__(self, api: Served, chunk: bytes, position: int, head: Head) -> None:
        self.api = api
        self.chunk = chunk
        self.position = position
        self.size: int = head[0]
        """Bytes behind the size field."""
        self.correlation_id: int = head[2]
        self.client_id_bytes: int = 2 + max(head[3], 0)
        self.end: int = position + 4 + self.size
        self.body: int | None = None
        """Where its body begins; None while its header has not been read: its client-id is that of the one before."""

    @property
    def missing(self) -> int:
        """Bytes that are still to come."""
        missing = self.end - len(self.chunk)
        return max(missing, 0)

    @property
    def frame(self) -> bytes:
        """The whole request, if it is there."""
        return self.chunk[self.position : self.end]

    def need_more(self) -> Need:
        """Return the decision to hold it until twice as much of it is there, or all.

        Twice, so that what comes byte by byte is read again a few times and not with each byte.
        """
        return Need(min(4 + self.size, 2 * (len(self.chunk) - self.position)))

    def count(self, account: Account) -> None:
        """Count a request that is neither a Produce nor a Fetch."""
        self.api.requests += 1
        account.meter.other_requests += 1
        account.meter.other_bytes += 4 + self.size

    def expect(self, account: Account, now_ms: int, throttle_ms: int = 0) -> Exchange:
        """Return the exchange of a request that goes now; with ``throttle_ms`` its answer tells that."""
        return expect(self.correlation_id, self.api, account, now_ms, throttle_ms)


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
        """The bytes from AFTER_CORRELATION_ID on of a request of ``api`` with this prefix."""
        self.width = 0
        """Bytes from the frame's size to the field that is read, of which ``needed`` must be there."""
        self.needed = 0

    def forget(self) -> None:
        """Read the next request anew."""
        self.number = NONE

    def find(self, request: Request) -> int | None:
        """Return the offset of the field behind the prefix of a request; None if it is not there yet.

        Raises ProtocolError if the request ends within that field.
        """
        chunk, position = request.chunk, request.position
        field = position + self.width
        if (
            self.number == request.api.spec.number
            and field + self.needed <= min(request.end, len(chunk))
            and chunk[position + AFTER_CORRELATION_ID : field] == self.beginning
        ):
            return field
        return self._read(request)

    def _read(self, request: Request) -> int | None:
        spec, chunk, end = request.api.spec, request.chunk, request.end
        body = request.body
        if body is None:
            body = request_body_offset(spec, chunk, request.position, end)
        if body == MORE:
            return None
        field, needed = _first_field(request.api.on_request, spec, chunk, body, end)
        if field == MORE or field + needed > len(chunk):
            return None
        self.api = request.api
        begin = request.position + AFTER_CORRELATION_ID
        kept = field - begin <= MAX_KEPT_BYTES
        self.number = spec.number if kept else NONE
        self.beginning = chunk[begin:field] if kept else b""
        self.width = field - request.position
        self.needed = needed
        return field


def _first_field(on_request: int, spec: ApiSpec, chunk: bytes, body: int, end: int) -> tuple[int, int]:
    if on_request == PRODUCE:
        return produce_acks_offset(spec, chunk, body, end), _ACKS_BYTES
    if on_request == FETCH and has_fetch_limits(spec):
        return fetch_limits_offset(spec, chunk, body, end), _LIMITS_BYTES
    return body, 0


def without_answered(served: Mapping[int, Served], held: bytes) -> tuple[bytes, int] | None:
    """Return ``held`` without the requests that expect an answer, and how many these are.

    A Produce with acks=0 expects none. A request that is not there to its end stays. Returns None if that is the first
    request, and expects an answer. Raises ProtocolError where a request ends inside its header.
    """
    kept: list[bytes] = []
    dropped, position = 0, 0
    while len(held) - position >= REQUEST_HEAD.size:
        size, number, _, _ = REQUEST_HEAD.unpack_from(held, position)
        end = position + 4 + size
        if end > len(held) and position:
            break
        api = served.get(number)
        if api is not None and api.on_request == PRODUCE and _is_unanswered(api.spec, held, position, end):
            kept.append(held[position:end])
        elif end > len(held):
            return None
        else:
            dropped += 1
        position = end
    return b"".join((*kept, held[position:])), dropped


def _is_unanswered(spec: ApiSpec, held: bytes, position: int, end: int) -> bool:
    body = request_body_offset(spec, held, position, end)
    return held.startswith(ACKS_0, produce_acks_offset(spec, held, body, end))


def answerable(served: Mapping[int, Served], held: bytes) -> bool:
    """Whether ``held`` begins with a whole Fetch. A ShareFetch may acknowledge, and only the broker takes that."""
    if len(held) < REQUEST_HEAD.size:
        return False
    size, key_version, _, _ = REQUEST_HEAD.unpack_from(held)
    return bool(len(held) >= 4 + size and served[key_version].spec.api_key == FETCH_KEY)
