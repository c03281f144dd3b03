"""The first batch of a Produce as clients encode it; and that anything else has none."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from protocol.first_batch import NO_BATCH, FirstBatch, first_batch
from protocol.table import SPECS, key_version
from protocol.varint import encode_varint
from tests.protocol.test_produce_topics import body_of

VERSIONS = range(3, 13)
LZ4 = 3


def batch(records: int, codec: int = 0) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for number in range(records):
        builder.append(number, timestamp=0, key=None, value=b"value" * 20, headers=[])
    return bytes(builder.build())


def behind_acks(version: int, topic: str, records: bytes) -> bytes:
    """What stands there, without a transactional id."""
    return body_of(version, [(topic, [records, records])])[(1 if version >= 9 else 2) + 2 :]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["t", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("codec", [0, LZ4])
def test_first_batch_of_a_produce_is_read(version: int, topic: str, codec: int) -> None:
    records = batch(50, codec)
    assert read(version, behind_acks(version, topic, records)) == (50, len(records), codec)


def test_first_batch_of_a_topic_id_is_read() -> None:
    records = batch(50)
    rest = bytes(4) + b"\2" + bytes(16) + b"\2" + bytes(4) + encode_varint(len(records) + 1) + records
    assert read(13, rest) == (50, len(records), 0)


@pytest.mark.parametrize("version", [7, 9])
def test_first_batch_needs_more_until_its_header_is_complete(version: int) -> None:
    records = batch(50)
    whole = behind_acks(version, "t", records)
    header_ends = whole.index(records) + 61
    assert read(version, whole[:header_ends], len(whole)) == (50, len(records), 0)
    assert all(read(version, whole[:size], len(whole)) is None for size in range(header_ends))
    assert all(read(version, whole[:size], size) == NO_BATCH for size in range(header_ends))


@pytest.mark.parametrize("version", [7, 9])
def test_a_name_that_no_topic_has_is_not_waited_for(version: int) -> None:
    name = (b"\xff\xff\x7f" if version >= 9 else b"\x7f\xff") + bytes(100)
    rest = bytes(4) + (b"\2" if version >= 9 else b"\0\0\0\1") + name
    assert read(version, rest, 10**8) == NO_BATCH


@given(st.sampled_from([3, 9, 13]), st.binary(max_size=200), st.integers(0, 250), st.integers(0, 10**6))
def test_first_batch_of_arbitrary_bytes_is_bounded(version: int, data: bytes, begin: int, more: int) -> None:
    spec = SPECS[key_version(0, version)]
    found = first_batch(spec, data, begin, len(data) + more)
    if found is not None:
        records, size, codec = found
        assert 0 <= records <= size
        assert 0 <= codec <= 7
    else:
        assert more


def test_batch_with_impossible_record_count_is_ignored() -> None:
    records = bytearray(batch(1))
    for count in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"):
        records[57:61] = count
        assert read(7, behind_acks(7, "t", bytes(records))) == NO_BATCH


def read(version: int, data: bytes, end: int | None = None) -> FirstBatch | None:
    return first_batch(SPECS[key_version(0, version)], data, 0, len(data) if end is None else end)
