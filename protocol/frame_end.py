"""The end of a long response, from its broker addresses on, written anew in the size that it had.

The frame's size has gone to the client already: what is missing is filled by an unknown tagged field, which clients
skip (KIP-482), and brokers for which there is no room are left out. Clients then refresh their Metadata.
"""

import struct
from struct import Struct
from typing import Final

from protocol.compile import Endpoint, skip_long
from protocol.errors import Cause, ProtocolError
from protocol.outline import Outline
from protocol.rewriting import MOST_LOOKED_UP
from protocol.splicer import Told
from protocol.varint import decode_varint, encode_varint, skip_tags

_INT32: Final = Struct(">i")
_FILLER_TAGS: Final = (b"\x7f", b"\xff\x7f")
"""Tags that Kafka does not use, of one byte and of two: with one alone, 130 bytes cannot be filled."""


def rewritten_end(outline: Outline, end: bytes, told: Told) -> bytes:
    """Return an end of the same size, with the addresses that clients are told; unknown brokers are left out.

    Raises ProtocolError for an end that is not read to its last byte.
    """
    kept: list[bytes] = []
    others: list[bytes] = []
    named = position = 0
    try:
        if outline.tag < 0:
            named, position = _endpoints(outline, end, position, told, kept)
        count, position = decode_varint(end, position)
        for _ in range(count):
            begin = position
            tag, position = decode_varint(end, position)
            size, position = decode_varint(end, position)
            stop = position + size
            if tag == outline.tag:
                more, position = _endpoints(outline, end, position, told, kept)
                named += more
                if position != stop:
                    raise bad_end(outline, "a tagged field does not end where its size says")
            else:
                others.append(end[begin:stop])
            position = stop
    except (IndexError, struct.error):
        position = -1
    if position != len(end):
        raise bad_end(outline, "it does not end where its size says")
    return _of_size(outline.tag, kept, others, len(end)) if named else end


def begin_blank(outline: Outline, size: int) -> bytes:
    """Return how an end of ``size`` bytes begins that names nobody; zeros follow."""
    begin = b"\1\1" if outline.tag < 0 else b"\1"
    return begin + filler(size - len(begin))


def filler(size: int) -> bytes:
    """Return how an unknown tagged field of ``size`` bytes, two at least, begins; zeros follow."""
    for tag in _FILLER_TAGS:
        for width in range(1, 6):
            content = size - len(tag) - width
            if content >= 0 and len(encode_varint(content)) == width:
                return tag + encode_varint(content)
    raise ValueError(size)


def bad_end(outline: Outline, problem: str) -> ProtocolError:
    return ProtocolError(Cause.BAD_BODY, f"{outline.spec} response: {problem}")


def _endpoints(outline: Outline, end: bytes, position: int, told: Told, kept: list[bytes]) -> tuple[int, int]:
    """Read an array of brokers, and add to ``kept`` what clients get; return how many there are, and where it ends."""
    count, position = decode_varint(end, position)
    for _ in range(count - 1):
        begin = position
        length, host_at = decode_varint(end, begin + 4)
        if not length:
            raise bad_end(outline, "a broker without a host")
        port_at = host_at + length - 1
        host = end[host_at:port_at]
        node_id, port = _INT32.unpack_from(end, begin)[0], _INT32.unpack_from(end, port_at)[0]
        position = skip_tags(end, skip_long(end, port_at + 4, True))
        if not host:  # no broker
            kept.append(end[begin:position])
        elif len(kept) < MOST_LOOKED_UP:
            address = told(Endpoint(node_id, host, port, begin, begin + 4, port_at))
            if address is not None:
                replaced = encode_varint(len(address[0]) + 1) + address[0] + _INT32.pack(address[1])
                kept.append(end[begin : begin + 4] + replaced + end[port_at + 4 : position])
    return max(count - 1, 0), position


def _of_size(tag: int, kept: list[bytes], others: list[bytes], size: int) -> bytes:
    """Return an end of ``size`` bytes with as many brokers as fit: a single byte cannot be filled, either."""
    while True:
        array, tags = encode_varint(len(kept) + 1) + b"".join(kept), others
        if tag >= 0:
            if kept:
                tags = [encode_varint(tag) + encode_varint(len(array)) + array, *others]
            array = b""
        content = b"".join(tags)
        written = array + encode_varint(len(tags)) + content
        if len(written) == size:
            return written
        written = array + encode_varint(len(tags) + 1) + content
        if size - len(written) > 1:
            return (written + filler(size - len(written))).ljust(size, b"\0")
        kept.pop()
