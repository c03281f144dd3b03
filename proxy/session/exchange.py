"""A request, from the moment it is found in the stream until it is answered to the last byte.

``Request`` is what a policy judges. It returns a decision (``Forward``, ``Park``, ``Need`` or ``Reply``), which the
stream that asked acts on. An ``Exchange`` is a request under way, and ``Body`` the part of it that is still to come.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.frames import Head
from protocol.headers import MORE, fetch_limits_offset, has_fetch_limits, produce_acks_offset, request_body_offset
from protocol.resumable_walk import ResumableWalk
from protocol.table import ApiSpec
from proxy.session.serving import FETCH, PRODUCE, TELL, Served
from proxy.usage.accounts import Account
from quotas.engine import Bound

MAX_IN_FLIGHT: Final = 1024
"""A broker works on one request of a connection at a time, and the Java client sends five ahead."""


class Body:
    """The rest of a request whose end is still to come. It uses what has come: a claim is not a use."""

    __slots__ = ("account", "rest_us")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.rest_us = 0.0
        """The cost that is charged to request_percentage when its last byte has come."""

    def count(self, size: int) -> None:
        """Count ``size`` bytes that have come; negative: that have not, after all."""
        self.account.meter.other_bytes += size

    def came(self, size: int, now_ms: int, *, finished: bool) -> bool:  # noqa: ARG002  of a Produce they matter
        """Take bytes that have come; returns whether the rest may come now."""
        self.count(size)
        return True

    def leave(self) -> None:
        """Note that no more of it comes: it is finished, or the connection is over."""


class Exchange:
    """A request under way and its answer. A request with acks=0 has none."""

    __slots__ = (
        "account",
        "actions",
        "answer_held_since_ms",
        "api",
        "correlation_id",
        "has_begun",
        "held_ms",
        "sent_ms",
        "throttle_ms",
        "throttled_until_ms",
    )

    def __init__(self, correlation_id: int, api: Served, account: Account, sent_ms: int, throttle_ms: int = 0) -> None:
        self.correlation_id = correlation_id
        self.api = api
        self.account = account
        """The account that is charged, whoever the client is by the time of the answer."""
        self.sent_ms = sent_ms
        self.actions = api.on_answer | TELL if throttle_ms else api.on_answer
        """Flags: what has to be done with the answer (``serving``)."""
        self.throttle_ms = throttle_ms
        """The throttle time that the answer tells, if ``actions`` say so."""
        self.throttled_until_ms = sent_ms + throttle_ms
        self.held_ms = 0
        """How long the proxy held the request before it went."""
        self.has_begun = False
        """The answer has begun to come, and has been counted."""
        self.answer_held_since_ms: int | None = None

    def tell(self, throttle_ms: int, now_ms: int) -> None:
        """Let the answer tell a throttle time that begins now, if there is one; of several the longest."""
        if throttle_ms:
            self.actions |= TELL
            self.throttle_ms = max(throttle_ms, self.throttle_ms)
            self.throttled_until_ms = max(now_ms + throttle_ms, self.throttled_until_ms)


InFlight = list[Exchange]
"""Requests under way, oldest first: brokers answer in order. A list, because few are in flight: an empty deque takes
760 bytes of each session."""


class Splice:
    """``data`` goes in place of the chunk's bytes from ``begin`` to ``end``."""

    __slots__ = ("begin", "data", "end")

    def __init__(self, begin: int, end: int, data: bytes) -> None:
        self.begin = begin
        self.end = end
        self.data = data


def pass_on(write: Callable[[bytes], None], chunk: bytes, stop: int, splices: Sequence[Splice]) -> None:
    """Write ``chunk`` up to ``stop``, with what goes in place of its parts."""
    if not splices:
        if stop:
            write(chunk if stop == len(chunk) else chunk[:stop])
        return
    parts: list[bytes] = []
    start = 0
    for each in splices:
        parts += (chunk[start : each.begin], each.data)
        start = each.end
    parts.append(chunk[start:stop])
    if data := b"".join(parts):
        write(data)


def dropped(data: bytes) -> None:
    """Take bytes for a connection that is gone."""


class Forward:
    """The request goes to the broker, with an edit or as it came.

    ``exchange`` expects its answer; None with acks=0. ``body`` counts and charges the rest of a request that has not
    come whole. ``stop`` has the reasons to read nothing behind it.
    """

    __slots__ = ("body", "edit", "exchange", "stop")

    def __init__(
        self, exchange: Exchange | None, edit: Splice | None = None, *, body: Body | None = None, stop: int = 0
    ) -> None:
        self.exchange = exchange
        self.edit = edit
        self.body = body
        self.stop = stop


class Park(NamedTuple):
    """The request, or the answer, is held with all that follows while ``reason`` holds (``flow``)."""

    reason: int


class Need(NamedTuple):
    """The request, or the answer, is held until so many bytes of it are there."""

    size: int


class Reply(NamedTuple):
    """The proxy answers the request itself: with ``answer``, or later if that is None."""

    answer: bytes | None


class Streamed(NamedTuple):
    """The answer goes as it comes, followed by ``walk``, with an edit of its beginning or without."""

    walk: ResumableWalk
    edit: Splice | None


Decision = Forward | Park | Need | Reply
"""About a request."""
Change = Splice | Streamed | Park | Need | None
"""About an answer; None: it goes as it came."""


# -------------------------------------------------------------------------------- requests in the stream

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

    __slots__ = ("api", "body", "chunk", "client_id_bytes", "correlation_id", "end", "passed", "position", "size")

    def __init__(self, api: Served, chunk: bytes, position: int, head: Head, passed: tuple[Bound, ...] = ()) -> None:
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
        self.passed = passed
        """The counters that it may pass now, whatever they owe: it has had its turn there."""

    @property
    def missing(self) -> int:
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

    def check_size(self, limit: int, setting: str, advice: str = "") -> None:
        """Raise ProtocolError for a request that is longer than a setting allows."""
        if self.size > limit:
            problem = f"{self.api.spec} request of {self.size} bytes, {setting} is {limit}{advice}"
            raise ProtocolError(Cause.FRAME_TOO_LARGE, problem)

    def count(self, account: Account) -> None:
        """Count a request that is not a Produce."""
        self.api.requests += 1
        account.meter.other_requests += 1
        account.meter.other_bytes += 4 + self.size

    def expect(self, account: Account, now_ms: int, throttle_ms: int = 0) -> Exchange:
        """Count a request that is not a Produce, and return its exchange."""
        self.count(account)
        return Exchange(self.correlation_id, self.api, account, now_ms, throttle_ms)


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
