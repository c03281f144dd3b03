"""Batches of records as brokers store them, taken apart without holding more than a document of what they unfold to.

A batch of one MiB, the most that brokers take by default, may unfold to 40 GiB. aiokafka decompresses first and looks
then; here a batch is decompressed piece by piece, and of a value that is too large its begin is kept. The layout is that
of Kafka's DefaultRecordBatch.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.util import calc_crc32c

from analysis.sources.place import KEPT_BYTES
from analysis.table.schema import MOST_DOCUMENT_BYTES

MOST_BATCH_BYTES: Final = 2**30
"""Decompressed: some ten thousand documents of a thousand rows, in a batch of one. What is behind them is refused."""
_MOST_BLOCK_BYTES: Final = 64 * 2**20
"""Of a block of snappy, which is decompressed as a whole; Java makes blocks of 32 KiB."""
_PIECE_BYTES: Final = 2**20
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH: Final = 12
_BEFORE_ATTRIBUTES: Final = 21
_LEAST_BYTES: Final = 26
"""Of any batch: offset, length and what messages of version 0 have."""
_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_STREAMS: Final = {_GZIP: "gzip", _LZ4: "lz4", _ZSTD: "zstd"}
_BY_BROKER, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class DamagedError(ValueError):
    """Why something is not what brokers store."""


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


class _Readable(Protocol):
    def read(self, size: int) -> bytes: ...


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
        stream = _Stream(memoryview(self._content)[_HEADER.size :])
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
        stream = _opened(self._attributes & 0x07, self._content[_HEADER.size :])
        stamped_ms = self._max_ms if self._attributes & _BY_BROKER else None
        for _ in range(self._count):
            yield self._record(stream, stamped_ms)

    def _record(self, stream: "_Stream", stamped_ms: int | None) -> Stored:
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
            wrapped = _opened(codec, _wrapped(self._content), MOST_DOCUMENT_BYTES * 8)
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


def _opened(codec: int, content: memoryview, most: int = MOST_BATCH_BYTES) -> "_Stream":
    if codec == _NONE:
        return _Stream(content, most=max(most, len(content)))
    if codec == _SNAPPY:
        return _Stream(b"", _Snappy(content), most)
    if codec not in _STREAMS:
        raise DamagedError(f"it is compressed by {codec}, which is none of Kafka's ways")
    return _Stream(b"", pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(content)), _STREAMS[codec]), most)


class _Snappy:
    """Blocks of snappy, as Java's library frames them, or one without a frame."""

    def __init__(self, content: memoryview) -> None:
        self._framed = bytes(content[: len(_XERIAL)]) == _XERIAL
        self._left = content[_XERIAL_HEADER_BYTES:] if self._framed else content

    def read(self, _: int) -> bytes:
        """Return the next block: one that is larger than asked for is none that harms."""
        if not self._left:
            return b""
        size = len(self._left)
        if self._framed:
            if size < 4:
                raise DamagedError("a block of snappy is cut")
            size = struct.unpack_from(">i", self._left)[0]
            self._left = self._left[4:]
        if not 0 < size <= len(self._left):
            raise DamagedError(f"a block of snappy of {size} bytes")
        block, self._left = self._left[:size], self._left[size:]
        claimed = _claimed(block)
        if claimed > _MOST_BLOCK_BYTES:
            raise DamagedError(f"a block of snappy of {claimed} bytes")
        return bytes(pa.decompress(pa.py_buffer(block), claimed, codec="snappy", asbytes=True))


def _claimed(block: memoryview) -> int:
    """Return how much a block of snappy says that it unfolds to: a number of five bytes at most."""
    number = 0
    for at, byte in enumerate(block[:5]):
        number |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return number
    raise DamagedError("a block of snappy has no size")


class _Stream:
    """Bytes that come by and by, of which no more than a piece is held."""

    def __init__(self, first: bytes | memoryview, rest: _Readable | None = None, most: int = MOST_BATCH_BYTES) -> None:
        self._piece = memoryview(first)
        self._rest = rest
        self._begin = 0
        """Where in all the piece begins."""
        self._in_piece = 0
        self._most = most

    @property
    def at(self) -> int:
        return self._begin + self._in_piece

    def take(self, size: int) -> bytes:
        parts = []
        while size > 0:
            part = self._piece[self._in_piece : self._in_piece + size]
            if not part:
                self._next()
                continue
            parts.append(part)
            self._in_piece += len(part)
            size -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        while size > 0:
            step = min(len(self._piece) - self._in_piece, size)
            if not step:
                self._next()
            self._in_piece += step
            size -= step

    def skip_all(self) -> None:
        """Go to the end."""
        while self._more():
            pass

    def varint(self) -> int:
        number = 0
        for at in range(10):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise DamagedError("a number has more than ten bytes")

    def _next(self) -> None:
        if not self._more():
            raise DamagedError("it ends within a record")

    def _more(self) -> bool:
        self._begin += len(self._piece)
        self._in_piece = 0
        try:
            self._piece = memoryview(self._rest.read(_PIECE_BYTES) if self._rest is not None else b"")
        except OSError as error:
            raise DamagedError(f"it cannot be decompressed: {error}") from error
        if self._begin + len(self._piece) > self._most:
            raise DamagedError(f"it unfolds to more than {self._most} bytes")
        return bool(self._piece)
