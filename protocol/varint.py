"""Unsigned varints (KIP-482: little-endian base 128, no zigzag) and tag sections.

Reading past the end raises IndexError, which the callers convert.
"""

from typing import Final

from protocol.errors import Cause, ProtocolError


class VarintError(ProtocolError):
    """A varint of more than five bytes."""

    def __init__(self, end: int) -> None:
        super().__init__(Cause.BAD_BODY, f"varint of more than 5 bytes before offset {end}")


MAX_TAGS: Final = 1000
"""The most tags of a section. Real ones have a handful; a header that arrives in pieces is parsed several times."""

_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]


def decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the uint32 at ``offset`` and the offset after it; overlong forms are legal.

    Five bytes at most; bits of the fifth beyond 32 are ignored, as in ByteUtils.readUnsignedVarint.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, offset
    raise VarintError(offset)


def encode_varint(value: int) -> bytes:
    """Return the shortest form of an uint32."""
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tags(data: bytes, offset: int) -> int:
    """Return the offset after the tag section at ``offset``, without reading the tags."""
    count, offset = decode_varint(data, offset)
    if count > MAX_TAGS:
        if 2 * count > len(data) - offset:
            raise IndexError(offset)
        raise ProtocolError(Cause.BAD_BODY, f"more than {MAX_TAGS} tagged fields before offset {offset}")
    for _ in range(count):
        _, offset = decode_varint(data, offset)
        size, offset = decode_varint(data, offset)
        offset += size
    if offset > len(data):
        raise IndexError(offset)
    return offset
