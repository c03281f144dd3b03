"""The topic names of a Produce request, read while its body streams past without being kept.

The names lie between the records, so the last one may come after a hundred megabytes of them. Only lengths, counts and
names are read; records and tagged fields are skipped. Up to version 12: later ones have ids instead of names (KIP-516).
The walk is as strict as a broker's, or stricter: wherever the two could disagree, it raises.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.table import ApiSpec
from protocol.varint import decode_varint

MOST_VERSION: Final = 12
_BYTES_EACH: Final = 16
"""The least bytes per topic, partition or tagged field: no records have less than 26, and from version 3 on less than
61. No real client sends denser requests, which would take longer to read than to send.
"""
_SPARE: Final = 64
MOST_NAME_BYTES: Final = 249
"""Of a topic (Topic.MAX_NAME_LENGTH)."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION: Final = Struct(">4xi")
"""The partition's number (ignored) and the size of its records."""
_ACKS_AND_TIMEOUT: Final = 6
_NONE: Final[list[bytes]] = []


class _MoreError(Exception):
    """A field is incomplete."""


class ProduceTopics:
    """The reader of one request. ``size`` is that of its body; feed it the body from its first byte."""

    __slots__ = (
        *("_entries", "_flexible", "_held", "_left", "_names", "_next", "_partitions", "_passed"),
        *("_skip", "_stop", "_tags", "_then", "_topics", "_version"),
    )

    def __init__(self, spec: ApiSpec, size: int) -> None:
        self._version = spec.api_version
        self._flexible = spec.flexible
        self._left = size
        self._passed = 0
        self._entries = 0
        self._skip = 0
        """Coming bytes to skip."""
        self._held = b""
        """The beginning of an incomplete field; nothing is skipped meanwhile."""
        self._names: list[bytes] = []
        self._stop = 0
        self._topics = self._partitions = self._tags = 0
        """The number still to come."""
        self._next: Callable[[bytes, int], int] | None = self._read_head
        self._then: Callable[[bytes, int], int] | None = None
        """The reader of the field after the tagged fields."""

    def feed(self, data: bytes, start: int, stop: int) -> list[bytes]:
        """Read data[start:stop], the next bytes of the body; return the raw names that end in it.

        Raises ProtocolError for an invalid Produce request, or one that ends too early.
        """
        size = stop - start
        self._left -= size
        self._passed += size
        if size <= self._skip and self._left:  # inside of records
            self._skip -= size
            return _NONE
        if self._held:
            data, start = self._held + data[start:stop], 0
            stop = len(data)
            self._held = b""
        names = self._names = []
        self._stop = stop
        position = start + self._skip
        try:
            while self._next is not None and position <= stop:
                position = self._next(data, position)
        except _MoreError:
            self._held = data[position:stop]
        self._skip = max(position - stop, 0)
        if self._next is None:  # a broker does not read the rest either
            self._skip = self._left
        elif self._skip > self._left or not self._left:
            raise _bad(f"fields that go beyond its {self._passed + self._left} bytes")
        return names

    # ---------------------------------------- fields: each returns the offset of the next, maybe beyond the data

    def _read_head(self, data: bytes, position: int) -> int:
        if self._version >= 3:
            length, position = self._length(data, position, _INT16)  # transactional_id
            position += max(length, 0)
        position += _ACKS_AND_TIMEOUT
        count, position = self._length(data, position, _INT32)
        self._topics = _counted(count)
        self._next = self._read_topic if count else None
        return position

    def _read_topic(self, data: bytes, position: int) -> int:
        length, begin = self._length(data, position, _INT16)
        if not 0 <= length <= 0x7FFF:
            raise _bad("a topic without a name, or too long a one")
        end = begin + length
        if length <= MOST_NAME_BYTES:  # else it is no topic's: no broker has one, and it is not kept until it is whole
            if end > self._stop:
                raise _MoreError
            self._names.append(data[begin:end])
        self._enter(1)
        self._topics -= 1
        self._next = self._count_partitions
        return end

    def _count_partitions(self, data: bytes, position: int) -> int:
        count, end = self._length(data, position, _INT32)
        self._partitions = _counted(count)
        self._next = self._read_partition if count else self._end_topic
        return end

    def _read_partition(self, data: bytes, position: int) -> int:
        if self._flexible:
            length, end = self._length(data, position + 4, _INT32)
            self._enter(1)
            self._partitions -= 1
            self._behind_tags(self._read_partition if self._partitions else self._end_topic)
            return end + max(length, 0)
        left, stop = self._partitions, self._stop
        while left and position + 8 <= stop:
            position += 8 + max(_PARTITION.unpack_from(data, position)[0], 0)
            left -= 1
        if left == self._partitions:
            raise _MoreError
        self._enter(self._partitions - left)
        self._partitions = left
        if not left:
            self._next = self._end_topic
        return position

    def _end_topic(self, data: bytes, position: int) -> int:
        del data
        if self._topics:
            self._behind_tags(self._read_topic)
        else:
            self._next = None
        return position

    def _behind_tags(self, field: Callable[[bytes, int], int]) -> None:
        """Read ``field`` next, after the tagged fields if the version has them."""
        if self._flexible:
            self._then, self._next = field, self._count_tags
        else:
            self._next = field

    def _count_tags(self, data: bytes, position: int) -> int:
        self._tags, position = self._varint(data, position)
        self._next = self._read_tag if self._tags else self._then
        return position

    def _read_tag(self, data: bytes, position: int) -> int:
        _, position = self._varint(data, position)
        size, position = self._varint(data, position)
        self._enter(1)
        self._tags -= 1
        if not self._tags:
            self._next = self._then
        return position + size

    # ------------------------------------------------------------------------------------------------- parts of fields

    def _length(self, data: bytes, position: int, plain: Struct) -> tuple[int, int]:
        """Return the length of a string, of bytes or of an array, below 0 for null, and the offset after it."""
        if self._flexible:
            length, position = self._varint(data, position)
            return length - 1, position
        end = position + plain.size
        if end > self._stop:
            raise _MoreError
        return plain.unpack_from(data, position)[0], end

    def _varint(self, data: bytes, position: int) -> tuple[int, int]:
        try:
            value, end = decode_varint(data, position)
        except IndexError:
            raise _MoreError from None
        if end > self._stop:
            raise _MoreError
        if value >= 1 << 31:
            raise _bad("a length beyond 2^31")  # to Java it is below 0
        return value, end

    def _enter(self, number: int) -> None:
        """Count topics, partitions or tags. Raises ProtocolError if there are too many."""
        self._entries += number
        if self._entries > _SPARE + self._passed // (_BYTES_EACH * (1 + self._flexible)):
            raise _bad(f"{self._entries} topics, partitions and tags in {self._passed} bytes")


def _counted(count: int) -> int:
    if count < 0:
        raise _bad("null for an array")
    return count


def _bad(found: str) -> ProtocolError:
    return ProtocolError(Cause.BAD_BODY, f"Produce request with {found}")
