"""Recognising responses without broker addresses, without walking through them.

The result of a walk depends only on the bytes that it reads: counts, lengths, numbers of tags. For a response without
brokers those bytes are remembered. Another response of the same size with the same bytes in the same places has no
brokers either; comparing takes a fraction of the time of a walk.
"""

from struct import Struct
from typing import Final

from protocol.compile import Endpoint, Tag, Walk, compile_walk, skip_long
from protocol.locator import response_body_offset
from protocol.table import ApiSpec
from protocol.varint import decode_varint, skip_tags

_MOST_SIZES: Final = 256
"""The most sizes remembered per API version; other responses are walked through."""
_MOST_SPANS: Final = 64
"""The most spans compared; for a response with more partitions a walk is as fast."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")

Spans = list[tuple[int, bytes]]


class Plain:
    """The known responses of one API version that have no broker addresses."""

    __slots__ = ("_spans_of", "_spec", "_walk")

    def __init__(self, spec: ApiSpec) -> None:
        self._spec = spec
        self._walk: Walk | None = None
        self._spans_of: dict[int, Spans] = {}
        """The expected bytes and their offsets, by response size."""

    def recognises(self, data: bytes, position: int, size: int) -> bool:
        """Whether the response of ``size`` at ``position``, which is complete, is known to have no brokers."""
        spans = self._spans_of.get(size)
        if spans is None:
            return False
        for offset, expected in spans:
            begin = position + offset
            if data[begin : begin + len(expected)] != expected:
                return False
        return True

    def learn(self, frame: bytes) -> None:
        """Remember ``frame``, a whole response in which no broker was found."""
        size = len(frame) - 4
        if size in self._spans_of or len(self._spans_of) >= _MOST_SIZES:
            return
        if self._walk is None:
            self._walk = compile_walk(self._spec.response_layout, self._spec.endpoint_path, _READS)
        body = response_body_offset(self._spec, frame, 0)
        reading = _Reading(frame)
        reading.note(8, body)
        endpoints: list[Endpoint] = []
        tags: list[Tag] = []
        self._walk(reading, body, endpoints, tags)  # type: ignore[arg-type]  # read with _READS
        spans = reading.spans()
        if len(spans) <= _MOST_SPANS:
            self._spans_of[size] = spans


class _Reading:
    """A frame that records which of its bytes are read."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self._read = bytearray(len(frame))

    def __len__(self) -> int:
        return len(self.frame)

    def __bool__(self) -> bool:
        return bool(self.frame)

    def __getitem__(self, offset: int) -> int:
        self._read[offset] = 1
        return self.frame[offset]

    def note(self, begin: int, end: int) -> None:
        """Mark the bytes from ``begin`` to ``end`` as read."""
        for offset in range(begin, min(end, len(self.frame))):
            self._read[offset] = 1

    def spans(self) -> Spans:
        """Return the bytes that were read, as contiguous spans."""
        spans: Spans = []
        begin = -1
        for offset in range(len(self.frame) + 1):
            is_read = offset < len(self.frame) and self._read[offset] == 1
            if is_read and begin < 0:
                begin = offset
            elif not is_read and begin >= 0:
                spans.append((begin, self.frame[begin:offset]))
                begin = -1
        return spans


def _int16(reading: _Reading, offset: int) -> tuple[int]:
    reading.note(offset, offset + 2)
    (value,) = _INT16.unpack_from(reading.frame, offset)
    return (value,)


def _int32(reading: _Reading, offset: int) -> tuple[int]:
    reading.note(offset, offset + 4)
    (value,) = _INT32.unpack_from(reading.frame, offset)
    return (value,)


def _varint(reading: _Reading, offset: int) -> tuple[int, int]:
    value, end = decode_varint(reading.frame, offset)
    reading.note(offset, end)
    return value, end


def _skip_long(reading: _Reading, offset: int, nullable: bool) -> int:
    _, after_length = decode_varint(reading.frame, offset)
    reading.note(offset, after_length)
    return skip_long(reading.frame, offset, nullable)


def _skip_tags(reading: _Reading, offset: int) -> int:
    end = skip_tags(reading.frame, offset)
    reading.note(offset, end)
    return end


_READS: Final = {
    "int16": _int16,
    "int32": _int32,
    "varint": _varint,
    "skip_long": _skip_long,
    "skip_tags": _skip_tags,
}
