"""A writer of responses with replaced broker addresses.

It fails closed: an address without a replacement is never forwarded unchanged.
"""

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from protocol.compile import Endpoint, Tag
from protocol.varint import encode_varint

Told = Callable[[Endpoint], tuple[bytes, int] | None]
"""Returns the (host, port) that a client gets for a broker; None if it is unknown."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UNKNOWN: Final = b"node-id-%d-is-not-known-to-sluice.invalid"
_NO_PORT: Final = 0

MANY: Final = 2**31
"""No bound on the number of lookups."""


class Splicer:
    """Copies a frame with changes. Changes come in the order of the frame, but throttle_time_ms, which precedes them,
    last.

    An endpoint without a replacement gets a name that can never be resolved (RFC 2606) and says why; one without a host
    ("no coordinator") is kept. Equal endpoints are looked up once.
    """

    __slots__ = ("_flexible", "_frame", "_known", "_out", "_position", "_tag", "_tag_begins", "_tags", "_told", "_view")

    def __init__(self, frame: bytes, flexible: bool, told: Told) -> None:
        self._frame = frame
        self._view = memoryview(frame)
        self._flexible = flexible
        self._told = told
        self._known: dict[bytes, bytes] = {}
        """The replacement of each host and port, by the bytes of node id, host and port."""
        self._out = bytearray()
        self._position = 0
        """The offset up to which the frame has been copied."""
        self._tags: deque[Tag] = deque()
        self._tag: Tag | None = None
        self._tag_begins = (0, 0)
        """The offsets of the size and the content of ``_tag`` in the output."""

    def take(self, endpoints: Sequence[Endpoint], tags: Sequence[Tag], most_looked_up: int = MANY) -> int:
        """Replace the next endpoints of the frame; ``tags`` are the tagged fields that contain some of them.

        Returns how many were replaced: it stops after looking up ``most_looked_up`` different ones.
        """
        self._tags.extend(tags)
        frame, known = self._frame, self._known
        most_known = len(known) + most_looked_up
        for number, endpoint in enumerate(endpoints):
            if len(known) >= most_known:
                return number
            while self._tags and self._tags[0].content_offset <= endpoint.host_offset:
                self._begin_tag(self._tags.popleft())
            if endpoint.host:
                as_it_came = frame[endpoint.id_offset : endpoint.port_offset + _INT32.size]
                replacement = known.get(as_it_came)
                if replacement is None:
                    replacement = known[as_it_came] = self._replacement(endpoint)
                self._put(endpoint.host_offset, endpoint.port_offset + _INT32.size, replacement)
        return len(endpoints)

    def tell(self, offset: int, throttle_ms: int) -> None:
        """Set throttle_time_ms at ``offset``. It precedes the addresses in every response."""
        if offset >= self._position:
            self._put(offset, offset + _INT32.size, _INT32.pack(throttle_ms))
        else:
            self._out[offset : offset + _INT32.size] = _INT32.pack(throttle_ms)

    def finish(self, stop: int, size: int) -> bytes:
        """Return the new bytes of the frame, whose size is ``size``, up to ``stop``; the frame itself if nothing
        changed.
        """
        if not self._position:
            return self._frame if stop == len(self._frame) else self._frame[:stop]
        self._end_tag()
        self._copy(stop)
        self._out[: _INT32.size] = _INT32.pack(size + len(self._out) - stop)
        return bytes(self._out)

    def _replacement(self, endpoint: Endpoint) -> bytes:
        host, port = self._told(endpoint) or (_UNKNOWN % endpoint.node_id, _NO_PORT)
        if len(host) == len(endpoint.host):  # an overlong varint stays
            length = self._frame[endpoint.host_offset : endpoint.port_offset - len(host)]
        else:
            length = encode_varint(len(host) + 1) if self._flexible else _INT16.pack(len(host))
        return length + host + _INT32.pack(port)

    def _put(self, start: int, stop: int, replacement: bytes) -> None:
        self._copy(start)
        self._out += replacement
        self._position = stop

    def _copy(self, stop: int) -> None:
        self._out += self._view[self._position : stop]
        self._position = stop

    def _begin_tag(self, tag: Tag) -> None:
        self._end_tag()
        self._copy(tag.size_offset)
        size_begins = len(self._out)
        self._copy(tag.content_offset)
        self._tag, self._tag_begins = tag, (size_begins, len(self._out))

    def _end_tag(self) -> None:
        """Update the size of the tagged field if its content changed size: clients skip by it."""
        if self._tag is None:
            return
        self._copy(self._tag.content_end)
        begins, content_begins = self._tag_begins
        size = len(self._out) - content_begins
        if size != self._tag.content_end - self._tag.content_offset:
            self._out[begins:content_begins] = encode_varint(size)
        self._tag = None
