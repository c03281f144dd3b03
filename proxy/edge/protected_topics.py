"""Requests that no client may send to a broker through the proxy: those that produce to the topic of usage records,
which are the bill, and those for an owner of the broker where this instance is not the owner.

It looks at what is forwarded, between a session and its broker, so a session knows nothing of it. A part of a request
may be with the broker when a name comes: no answer could be given that is sure to be the only one. So both ends are
closed, before the first byte of that topic's partitions is forwarded: what the broker has by then is no whole request.
"""

from collections.abc import Callable, Collection
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD
from protocol.headers import MORE, request_body_offset
from protocol.produce_topics import ProduceTopics
from protocol.table import SPECS

_PRODUCE: Final = 0

FOR_THE_OWNER: Final = frozenset((_PRODUCE, 1, 78, 79))
"""Produce, Fetch, ShareFetch and ShareAcknowledge: the broker's owner counts what they move."""


class Guard:
    """Forwards requests to a broker, but none that is to produce to one of ``topics``, and none of ``refused_apis``.

    ``raw``: whether what comes is SASL tokens without headers.
    """

    __slots__ = ("_forward", "_held", "_left", "_raw", "_refused_apis", "_topics", "_walk")

    def __init__(
        self,
        topics: Collection[bytes],
        forward: Callable[[bytes], None],
        raw: Callable[[], bool],
        refused_apis: Collection[int] = (),
    ) -> None:
        self._refused_apis = refused_apis
        self._topics = topics
        self._forward = forward
        self._raw = raw
        self._left = 0
        """Bytes of the frame under way that are still to come."""
        self._walk: ProduceTopics | None = None
        """The walk through that frame, if it is a Produce."""
        self._held = b""
        """A header that was not all there. It has been forwarded: nothing in it can be refused."""

    def write(self, data: bytes) -> None:
        """Forward what comes next. Raises ProtocolError for a Produce that is not to pass."""
        self._look(data)
        self._forward(data)

    def _look(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        position, end = 0, len(data)
        while position < end:
            if not self._left:
                begin = self._begin(data, position, end)
                if begin == MORE:
                    self._held = data[position:]
                    return
                position = begin
            step = min(self._left, end - position)
            if self._walk is not None:
                self._judge(self._walk.feed(data, position, position + step))
            self._left -= step
            position += step

    def _begin(self, data: bytes, position: int, end: int) -> int:
        """Begin with the frame at ``position``; return where its body is, or MORE if its header is not all there."""
        self._walk = None
        if end - position < REQUEST_HEAD.size and not (self._raw() and end - position >= 4):
            return MORE
        size = int.from_bytes(data[position : position + 4], "big")
        key_version = int.from_bytes(data[position + 4 : position + 8], "big")
        begin = position + 4
        if key_version >> 16 in self._refused_apis and not self._raw():
            said = f"{SPECS[key_version]} at a broker that another instance owns: clients are told its address"
            raise ProtocolError(Cause.NOT_OWNER, said)
        if key_version >> 16 == _PRODUCE and not self._raw():
            spec = SPECS[key_version]
            begin = request_body_offset(spec, data, position, position + 4 + size)
            if begin == MORE:
                return MORE
            self._walk = ProduceTopics(spec, position + 4 + size - begin)
        self._left = position + 4 + size - begin
        return begin

    def _judge(self, names: list[bytes]) -> None:
        for name in names:
            if name in self._topics:
                said = f"Produce to topic {name.decode()}, which is for usage records alone (usage.topic.protect)"
                raise ProtocolError(Cause.PROTECTED_TOPIC, said)
