"""How many records the first batch of a Produce has, as clients encode it; and anything else has none."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from protocol.first_batch import records_per_byte
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
def test_what_clients_encode(version: int, topic: str, codec: int) -> None:
    records = batch(50, codec)
    read = records_per_byte(SPECS[key_version(0, version)], behind_acks(version, topic, records), 0)
    assert read == pytest.approx(50 / len(records))


def test_topics_that_are_known_by_an_id() -> None:
    records = batch(50)
    rest = bytes(4) + b"\2" + bytes(16) + b"\2" + bytes(4) + encode_varint(len(records) + 1) + records
    assert records_per_byte(SPECS[key_version(0, 13)], rest, 0) == pytest.approx(50 / len(records))


def test_a_beginning_of_it_is_enough_from_the_header_on() -> None:
    records = batch(50)
    whole = behind_acks(9, "t", records)
    header_ends = whole.index(records) + 61
    spec = SPECS[key_version(0, 9)]
    assert records_per_byte(spec, whole[:header_ends], 0) > 0
    assert all(records_per_byte(spec, whole[:size], 0) == 0 for size in range(header_ends))


@given(st.sampled_from([3, 9, 13]), st.binary(max_size=200), st.integers(0, 250))
def test_any_bytes(version: int, data: bytes, begin: int) -> None:
    assert 0 <= records_per_byte(SPECS[key_version(0, version)], data, begin) <= 1


def test_a_count_that_cannot_be_is_none() -> None:
    records = bytearray(batch(1))
    for count in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"):
        records[57:61] = count
        assert records_per_byte(SPECS[key_version(0, 7)], behind_acks(7, "t", bytes(records)), 0) == 0
