"""Batches of records as brokers store them, taken apart without holding more than a document of what they unfold to.

A batch of one MiB, the most that brokers take by default, may unfold to 40 GiB. aiokafka decompresses first and looks
then; here a batch is decompressed piece by piece, and of a value that is too large its begin is kept. The layout is
that of Kafka's DefaultRecordBatch.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.util import calc_crc32c

from analysis.sources.place import KEPT_BYTES
from analysis.sources.unfolding import DamagedError, Unfolded, unfolded
from analysis.table.schema import MOST_DOCUMENT_BYTES

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH: Final = 12
_BEFORE_ATTRIBUTES: Final = 21
_LEAST_BYTES: Final = 26
"""Of any batch: offset, length and what messages of version 0 have."""
_BY_BROKER, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20


@dataclass(frozen=True, slots=True)
class Stored:
    """A record; or, with a fault, offsets ``offset`` to ``last`` of which nothing can be had."""

    offset: int
    last: int
    value: bytes | None
    """Whole, or the first KEPT_BYTES of one that is larger than any document; with a fault, of the batch."""
    size: int
    """Of the whole value."""
    stamped_ms: int | None = None
    """When the broker took it in, by its own clock; None: the topic has the clocks of its writers."""
    fault: str | None = None


def batches(content: bytes) -> "Iterator[Batch]":
    """Yield the batches of a fetched partition, in their order. Raises DamagedError where none begins, or none ends."""
    view = memoryview(content)
    whole = False
    while len(view) >= _BEFORE_LENGTH:
        _, length = struct.unpack_from(">qi", view)
        if length < _LEAST_BYTES - _BEFORE_LENGTH:
            raise DamagedError(f"a batch of {length} bytes")
        if len(view) < _BEFORE_LENGTH + length:
            break  # brokers send what fits: the last one may be cut
        whole = True
        yield Batch(view[: _BEFORE_LENGTH + length])
        view = view[_BEFORE_LENGTH + length :]
    if not whole:
        raise DamagedError(f"no batch ends within {len(content)} bytes")


class Batch:
    """One batch, of version 2; one message, or some that are compressed into one, of the versions before Kafka 0.11."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        magic = content[16]
        self._legacy = LegacyRecordBatch(content, magic) if magic < 2 else None
        if self._legacy is not None:
            self.first = self.last = struct.unpack_from(">q", content)[0]
            self._attributes, self.producer_id, self._count = 0, -1, 1
            return
        if magic > 2 or len(content) < _HEADER.size:
            raise DamagedError(f"a batch of version {magic} with {len(content)} bytes")
        header = _HEADER.unpack_from(content)
        self.first, _, _, _, self._crc, self._attributes, delta, _, self._max_ms, self.producer_id, _, _, count = header
        if delta < 0:
            raise DamagedError(f"a batch that ends {-delta} before it begins")
        self.last = self.first + delta
        """For a message of the old versions its own offset: within a compressed one, that of the last."""
        self._count = count

    @property
    def is_control(self) -> bool:
        """Whether it marks where a transaction ends."""
        return bool(self._attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return bool(self._attributes & _TRANSACTIONAL)

    @property
    def aborts(self) -> bool:
        """Whether it marks the end of a transaction that was aborted: its only record's key is version and type."""
        stream = Unfolded(memoryview(self._content)[_HEADER.size :])
        try:
            stream.varint()
            stream.take(1)
            for _ in range(3):
                stream.varint()
            return bool(struct.unpack(">hh", stream.take(4))[1] == 0)
        except (DamagedError, struct.error):
            return False

    def records(self, begin: int) -> Iterator[Stored]:
        """Yield the records from an offset on; a fault is the last that it yields. Nobody need take all of them."""
        following = max(begin, self.first if self._legacy is None else begin)
        try:
            for record in self._all():
                if record.offset >= begin:
                    yield record
                following = max(following, record.offset + 1)
        except (DamagedError, OSError, ValueError, IndexError) as error:
            if following <= self.last:
                yield self.lost(following, str(error))

    def lost(self, begin: int, why: str) -> Stored:
        """Return what stands for all from an offset on."""
        until = f"; nothing to offset {self.last} can be had" if self.last > begin else ""
        kept = bytes(self._content[:KEPT_BYTES])
        return Stored(begin, self.last, kept, len(self._content), fault=f"is in a batch that is damaged: {why}{until}")

    def _all(self) -> Iterator[Stored]:
        if self._legacy is not None:
            yield from self._of_legacy()
            return
        if calc_crc32c(bytes(self._content[_BEFORE_ATTRIBUTES:])) != self._crc:
            raise DamagedError("its checksum (CRC) is another")
        stream = unfolded(self._attributes & 0x07, self._content[_HEADER.size :])
        stamped_ms = self._max_ms if self._attributes & _BY_BROKER else None
        for _ in range(self._count):
            yield self._record(stream, stamped_ms)

    def _record(self, stream: Unfolded, stamped_ms: int | None) -> Stored:
        length = stream.varint()
        end = stream.at + length
        stream.take(1)
        stream.varint()
        offset = self.first + stream.varint()
        stream.skip(max(stream.varint(), 0))
        size = stream.varint()
        value = None
        if size >= 0:
            value = stream.take(size if size <= MOST_DOCUMENT_BYTES else KEPT_BYTES)
        if end < stream.at or (value is not None and stream.at - len(value) + size > end):
            raise DamagedError("a record is longer than it says")
        stream.skip(end - stream.at)
        if not self.first <= offset <= self.last:
            raise DamagedError(f"a record has offset {offset}")
        return Stored(offset, offset, value, max(size, 0), stamped_ms)

    def _of_legacy(self) -> Iterator[Stored]:
        """Yield messages of the old versions: aiokafka takes them apart, when they are not too large for that."""
        assert self._legacy is not None  # noqa: S101  for types
        if not self._legacy.validate_crc():
            raise DamagedError("its checksum (CRC) is another")
        if codec := self._content[17] & 0x07:
            wrapped = unfolded(codec, _wrapped(self._content), MOST_DOCUMENT_BYTES * 8)
            wrapped.skip_all()
        for record in self._legacy:
            value = record.value
            size = len(value or b"")
            kept = value if size <= MOST_DOCUMENT_BYTES or value is None else value[:KEPT_BYTES]
            yield Stored(record.offset, record.offset, kept, size, record.timestamp if record.timestamp_type else None)


def _wrapped(message: memoryview) -> memoryview:
    """Return the value of a message of version 0 or 1."""
    at = 18 + 8 * message[16]
    key = struct.unpack_from(">i", message, at)[0]
    at += 4 + max(key, 0)
    size = struct.unpack_from(">i", message, at)[0]
    return message[at + 4 : at + 4 + max(size, 0)]
