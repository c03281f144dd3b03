"""The record count, size and codec of a Produce, from the header of its first record batch.

Records themselves are not read. A broker looks at every record, compressed or not, so the size alone does not tell how
much work a request is.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be

from protocol.table import ApiSpec
from protocol.varint import VarintError, decode_varint

_TIMEOUT_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16
_ID_SINCE: Final = 13
"""The first version with topic ids instead of names (KIP-516)."""
_LENGTH_AT: Final = 8
_BEFORE_LENGTH_BYTES: Final = 12
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 21
_CODEC_MASK: Final = 7
_COUNT_AT: Final = 57
_HEADER_BYTES: Final = 61
_MAGIC: Final = 2
_MOST_NAME_BYTES: Final = 1024
"""A longer topic name cannot be valid (brokers allow 249 characters): it is not waited for."""

FirstBatch = tuple[int, int, int]
"""Number of records, size of the batch in bytes, codec (Kafka's number: 4 is zstd)."""

NO_BATCH: Final[FirstBatch] = (0, 0, 0)


def first_batch(spec: ApiSpec, chunk: bytes, behind_acks: int, end: int) -> FirstBatch | None:
    """Read the header of the first batch. Returns None if more of the request, which ends at ``end``, is needed.

    ``behind_acks`` is the offset after acks. Returns NO_BATCH if there is no batch of format v2 with a plausible count;
    a broker refuses batches with a false count.
    """
    try:
        position = _batch_offset(spec, chunk, behind_acks + _TIMEOUT_BYTES)
    except IndexError:
        return None if end > len(chunk) else NO_BATCH
    except (VarintError, ValueError):
        return NO_BATCH
    if position + _HEADER_BYTES > end:
        return NO_BATCH
    if position + _HEADER_BYTES > len(chunk):
        return None
    if chunk[position + _MAGIC_AT] != _MAGIC:
        return NO_BATCH
    size: int = read_i32_be(chunk, position + _LENGTH_AT)
    count: int = read_i32_be(chunk, position + _COUNT_AT)
    if not 0 < count <= size:
        return NO_BATCH
    return count, size + _BEFORE_LENGTH_BYTES, read_i16_be(chunk, position + _ATTRIBUTES_AT) & _CODEC_MASK


def _batch_offset(spec: ApiSpec, chunk: bytes, position: int) -> int:
    """Return the offset of the first partition's records, maybe beyond the chunk."""
    if not spec.flexible:
        name_at = position + 4
        if name_at + 2 > len(chunk):
            raise IndexError
        name_bytes = max(read_i16_be(chunk, name_at), 0)
        if name_bytes > _MOST_NAME_BYTES:
            raise ValueError(name_bytes)
        return name_at + 2 + name_bytes + 4 + 4 + 4  # partition count, partition, record bytes
    _, position = decode_varint(chunk, position)
    if spec.api_version >= _ID_SINCE:
        position += _TOPIC_ID_BYTES
    else:
        length, position = decode_varint(chunk, position)
        if length > _MOST_NAME_BYTES:
            raise ValueError(length)
        position += max(length - 1, 0)
    _, position = decode_varint(chunk, position)
    _, position = decode_varint(chunk, position + 4)
    return position
