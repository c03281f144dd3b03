"""Requests that no client may send to a broker through the proxy: those that produce to the topic of usage records,
which are the bill; those for the owner of the broker, where this instance is not; and those of members of the group in
which instances elect owners, or that describe it: the answer has the messages of its members.

It looks at what is forwarded, between a session and its broker, so a session knows nothing of it. A part of a request
may be with the broker when a name comes: no answer could be given that is sure to be the only one. So both ends are
closed, before the first byte of that topic's partitions is forwarded: what the broker has by then is no whole request.
"""

from collections.abc import Callable, Collection
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD
from protocol.group_names import GroupNames
from protocol.headers import MORE, HeaderRest
from protocol.produce_topics import ProduceTopics
from protocol.table import NAMES, SPECS

_PRODUCE: Final = 0
_SIZE_BYTES: Final = 4
_BEGIN: Final = Struct(">ih")
"""A request's size and api key."""

_FOR_THE_OWNER: Final = frozenset((_PRODUCE, 1, 78, 79))
"""Produce, Fetch, ShareFetch and ShareAcknowledge: the broker's owner counts what they move."""
_OF_MEMBERS: Final = frozenset((11, 12, 13, 14, 68, 76, 88))
"""JoinGroup, Heartbeat, LeaveGroup, SyncGroup, and the heartbeats of consumer, share and streams groups: the group is
their first field.
"""
_DESCRIBING: Final = frozenset((15, 69, 77, 89))
"""DescribeGroups and those of consumer, share and streams groups: an array of groups is their first field."""
_OF_GROUPS: Final = _OF_MEMBERS | _DESCRIBING
_BUT_QUESTIONS: Final = frozenset(NAMES) - {3, 10, 17, 18, 36, 60, 75}
"""All but Metadata, FindCoordinator, SASL, ApiVersions, DescribeCluster and DescribeTopicPartitions."""


class RefusedApis(NamedTuple):
    """Requests that are not to pass on a connection, and why."""

    api_keys: frozenset[int]
    cause: Cause
    text: str


_OWNED = "at a broker that another instance owns: clients are told its address"
NOT_OWNER: Final = RefusedApis(_FOR_THE_OWNER, Cause.NOT_OWNER, _OWNED)
"""From the bootstrap address, whose client has chosen no broker."""
NOT_OWNER_OF_THIS: Final = RefusedApis(_BUT_QUESTIONS, Cause.NOT_OWNER, _OWNED)
NO_SNI: Final = RefusedApis(
    _FOR_THE_OWNER | _OF_MEMBERS | {8, 9, 24, 25, 26, 28},  # commits and transactions: for one broker alone, likewise
    Cause.NO_SNI,
    "on a connection that names no host in TLS (SNI), so that it may lead to any broker: let the client connect by the "
    "host names that it is told, not by IP address, and turn SNI on in it",
)
"""At a listener with broker_host."""


class Guard:
    """Forwards requests to a broker, except those that produce to one of ``topics``, those that are ``refused``, and
    those of a member of ``group``, or that describe it.

    ``raw``: whether what comes is SASL tokens without headers.
    """

    __slots__ = ("_forward", "_group", "_header", "_held", "_judged", "_left", "_raw", "_refused", "_topics", "_walk")

    def __init__(
        self,
        topics: Collection[bytes],
        forward: Callable[[bytes], None],
        raw: Callable[[], bool],
        refused: RefusedApis | None = None,
        group: bytes | None = None,
    ) -> None:
        self._group = group
        self._judged = frozenset(
            (*(refused.api_keys if refused else ()), *((_PRODUCE,) if topics else ()), *(_OF_GROUPS if group else ()))
        )
        self._refused = refused
        self._topics = topics
        self._forward = forward
        self._raw = raw
        self._left = 0
        """Bytes of the frame under way that are still to come."""
        self._walk: ProduceTopics | GroupNames | None = None
        """The walk through the names in that frame, if it has any."""
        self._header: HeaderRest | None = None
        """The rest of that frame's header, while it is to come and names follow."""
        self._held = b""
        """The first bytes of a header that were not all there. They have been forwarded, and can be no names."""

    def write(self, data: bytes) -> None:
        """Forward what comes next. Raises ProtocolError for a request that is not to pass."""
        if not self._left and not self._held and len(data) >= _BEGIN.size:
            size, api_key = _BEGIN.unpack_from(data)
            if size + 4 == len(data) and api_key not in self._judged:  # usually: a fifth of the time of a look
                self._forward(data)
                return
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
            stop = position + min(self._left, end - position)
            self._left -= stop - position
            if self._header is not None:
                position = self._pass_header(self._header, data, position, stop)
            if self._walk is not None:
                self._judge(self._walk.feed(data, position, stop))
            position = stop

    def _begin(self, data: bytes, position: int, end: int) -> int:
        """Begin with the frame at ``position``; return where to go on, or MORE if its first bytes are not all there."""
        self._walk = self._header = None
        raw = self._raw()
        if end - position < (_SIZE_BYTES if raw else REQUEST_HEAD.size):
            return MORE
        size = int.from_bytes(data[position : position + _SIZE_BYTES], "big")
        begin = position + _SIZE_BYTES
        if not raw:
            _, key_version, _, client_id_bytes = REQUEST_HEAD.unpack_from(data, position)
            begin = self._judge_begin(begin, key_version, client_id_bytes)
        self._left = position + _SIZE_BYTES + size - begin
        return begin

    def _judge_begin(self, position: int, key_version: int, client_id_bytes: int) -> int:
        """Return where to go on with the request whose fields begin at ``position``."""
        api_key = key_version >> 16
        if self._refused is not None and api_key in self._refused.api_keys:
            raise ProtocolError(self._refused.cause, f"{SPECS[key_version]} {self._refused.text}")
        is_of_group = self._group is not None and api_key in _OF_GROUPS
        if not is_of_group and (api_key != _PRODUCE or not self._topics):
            return position
        self._header = HeaderRest(SPECS[key_version], client_id_bytes)
        return position + REQUEST_HEAD.size - _SIZE_BYTES

    def _pass_header(self, header: HeaderRest, data: bytes, position: int, stop: int) -> int:
        """Return where the body begins, in which the names are, or ``stop`` if the header goes on."""
        begin = header.body_offset(data, position, stop)
        if begin != MORE:
            self._header, spec = None, header.spec
            if self._group is not None and spec.api_key in _OF_GROUPS:
                self._walk = GroupNames(spec, self._group, is_array=spec.api_key in _DESCRIBING)
            else:
                self._walk = ProduceTopics(spec, stop - begin + self._left)
            return begin
        if not self._left:
            raise ProtocolError(Cause.BAD_HEADER, f"{header.spec} request ends inside its header")
        return stop

    def _judge(self, names: list[bytes]) -> None:
        for name in names:
            if isinstance(self._walk, GroupNames):
                said = f"{self._walk.spec} of group {name.decode('utf-8', 'replace')}, in which instances elect owners"
                raise ProtocolError(Cause.PROTECTED_GROUP, said)
            if name in self._topics:
                said = f"Produce to topic {name.decode()}, which is for usage records alone (usage.topic.protect)"
                raise ProtocolError(Cause.PROTECTED_TOPIC, said)
