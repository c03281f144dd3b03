import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.varint import decode_varint, encode_varint, skip_tags


@given(st.integers(0, 0xFFFFFFFF), st.binary(max_size=3))
def test_varint_round_trip_keeps_the_value(value: int, behind: bytes) -> None:
    encoded = encode_varint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert decode_varint(b"x" + encoded + behind, 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("encoded", "value"),
    [("8000", 0), ("8180808000", 1), ("ffffffff0f", 0xFFFFFFFF), ("ffffffff7f", 0xFFFFFFFF), ("8080808070", 0)],
)
def test_overlong_varint_and_ignored_bits_are_decoded(encoded: str, value: int) -> None:
    data = bytes.fromhex(encoded)
    assert decode_varint(data, 0) == (value, len(data))


def test_varint_over_five_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_varint(bytes.fromhex("808080808000"), 0)


@pytest.mark.parametrize("encoded", ["", "80", "80808080"])
def test_truncated_varint_is_an_index_error(encoded: str) -> None:
    with pytest.raises(IndexError):
        decode_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("section", "length"), [("00", 1), ("8000", 2), ("01 05 02 aaaa", 5), ("02 00 00 07 01 ff", 6)]
)
def test_tagged_fields_are_skipped_by_length(section: str, length: int) -> None:
    assert skip_tags(bytes.fromhex("ff" + section + "ff"), 1) == 1 + length


@pytest.mark.parametrize("section", ["", "01", "01 05", "01 05 02 aa", "02 05 00", "ffffffff0f", "01 00 ffffffff07"])
def test_truncated_tagged_fields_are_an_index_error(section: str) -> None:
    with pytest.raises(IndexError):
        skip_tags(bytes.fromhex(section), 0)
