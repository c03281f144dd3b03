"""Bytes that are compressed in one of Kafka's ways, decompressed piece by piece: no more than a piece is held."""

import struct
from typing import Final, Protocol

import pyarrow as pa

MOST_BATCH_BYTES: Final = 2**30
"""Decompressed: some ten thousand documents of a thousand rows, in a batch of one. What is behind them is refused."""
_MOST_BLOCK_BYTES: Final = 64 * 2**20
"""Of a block of snappy, which is decompressed as a whole; Java makes blocks of 32 KiB."""
_PIECE_BYTES: Final = 2**20
_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_STREAMS: Final = {_GZIP: "gzip", _LZ4: "lz4", _ZSTD: "zstd"}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class DamagedError(ValueError):
    """Why something is not what brokers store."""


class _Readable(Protocol):
    def read(self, size: int) -> bytes: ...


def unfolded(codec: int, content: memoryview, most: int = MOST_BATCH_BYTES) -> "Unfolded":
    """Return what is compressed by a codec, by its number in a batch; more than ``most`` bytes are damage."""
    if codec == _NONE:
        return Unfolded(content, most=max(most, len(content)))
    if codec == _SNAPPY:
        return Unfolded(b"", _Snappy(content), most)
    if codec not in _STREAMS:
        raise DamagedError(f"it is compressed by {codec}, which is none of Kafka's ways")
    return Unfolded(b"", pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(content)), _STREAMS[codec]), most)


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


class Unfolded:
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
