"""How densely a Produce request is packed: what the header of its first record batch says, without reading records.

A broker looks at every record, compressed or not, so that bytes alone do not say how long it is at a request.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be

from protocol.table import ApiSpec
from protocol.varint import VarintError, decode_varint

_TIMEOUT_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16
_ID_SINCE: Final = 13
"""Topics are known by an id from this version on (KIP-516)."""
_LENGTH_AT: Final = 8
_BEFORE_LENGTH_BYTES: Final = 12
_MAGIC_AT: Final = 16
_COUNT_AT: Final = 57
_HEADER_BYTES: Final = 61
_MAGIC: Final = 2


def records_per_byte(spec: ApiSpec, chunk: bytes, behind_acks: int) -> float:
    """Return how many records the first batch has for each byte of it; 0.0 if it is not all there, or no such batch.

    ``behind_acks`` is where the field behind acks begins. A broker refuses a batch whose count is not true.
    """
    try:
        position = _batch_offset(spec, chunk, behind_acks + _TIMEOUT_BYTES)
    except (IndexError, VarintError):
        return 0.0
    if position + _HEADER_BYTES > len(chunk) or chunk[position + _MAGIC_AT] != _MAGIC:
        return 0.0
    size: int = read_i32_be(chunk, position + _LENGTH_AT)
    count: int = read_i32_be(chunk, position + _COUNT_AT)
    return count / (size + _BEFORE_LENGTH_BYTES) if 0 < count <= size else 0.0


def _batch_offset(spec: ApiSpec, chunk: bytes, position: int) -> int:
    """Return where the records of the first partition begin, maybe beyond the chunk."""
    if not spec.flexible:
        name_at = position + 4
        if name_at + 2 > len(chunk):
            raise IndexError
        name_bytes: int = read_i16_be(chunk, name_at)
        return name_at + 2 + max(name_bytes, 0) + 4 + 4 + 4  # how many partitions, which one, how many bytes
    _, position = decode_varint(chunk, position)
    if spec.api_version >= _ID_SINCE:
        position += _TOPIC_ID_BYTES
    else:
        length, position = decode_varint(chunk, position)
        position += max(length - 1, 0)
    _, position = decode_varint(chunk, position)
    _, position = decode_varint(chunk, position + 4)
    return position
