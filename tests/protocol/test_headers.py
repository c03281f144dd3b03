import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Cause, ProtocolError
from protocol.headers import (
    MAX_HEADER_BYTES,
    client_id,
    fetch_limits_offset,
    has_fetch_limits,
    produce_acks,
    produce_acks_offset,
    request_body_offset,
)
from protocol.layout import fixed_offset
from protocol.table import SPECS, ApiSpec, key_version
from protocol.varint import MAX_TAGS, encode_varint

V1 = SPECS[key_version(3, 1)]
V2 = SPECS[key_version(3, 12)]
PRODUCE = {version: SPECS[key_version(0, version)] for version in range(14)}
BEFORE = b"another frame"


def request(spec: ApiSpec, after_correlation_id: bytes) -> bytes:
    payload = struct.pack(">hhi", spec.api_key, spec.api_version, 7) + after_correlation_id
    return struct.pack(">i", len(payload)) + payload


def string(value: bytes | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value


def tags(*sizes: int) -> bytes:
    content = b"".join(encode_varint(tag) + encode_varint(size) + bytes(size) for tag, size in enumerate(sizes))
    return encode_varint(len(sizes)) + content


def prefixes(frame: bytes) -> Iterator[bytes]:
    return (frame[:length] for length in range(14, len(frame)))


@pytest.mark.parametrize(
    ("spec", "header"),
    [
        (V1, string(b"producer-1")),
        (V1, string(b"")),
        (V1, string(None)),
        (V1, struct.pack(">h", -2)),
        (V2, string(b"producer-1") + tags()),
        (V2, string(None) + tags()),
        (V2, string(b"x") + tags(0, 3, 200)),
        (V2, string(b"x") + b"\x80\x00"),
    ],
)
def test_body_offset_is_known_once_the_header_is_complete(spec: ApiSpec, header: bytes) -> None:
    frame = request(spec, header + b"body")
    start, data = len(BEFORE), BEFORE + frame
    body = start + 12 + len(header)
    assert request_body_offset(spec, data, start, len(data)) == body
    assert request_body_offset(spec, data + frame, start, len(data)) == body
    for length in range(start + 14, len(data)):
        expected = body if length >= body else -1
        assert request_body_offset(spec, data[:length], start, len(data)) == expected


@pytest.mark.parametrize("spec", [V1, V2])
def test_frame_ending_inside_its_header_is_refused(spec: ApiSpec) -> None:
    header = string(b"client") + (tags(3) if spec is V2 else b"")
    for length in range(len(header)):
        frame = request(spec, header[:length])
        for data in (frame, frame + bytes(100)):
            with pytest.raises(ProtocolError) as refused:
                request_body_offset(spec, data, 0, len(frame))
            assert refused.value.cause is Cause.BAD_HEADER


def test_header_v0_has_no_client_id() -> None:
    spec = SPECS[key_version(7, 0)]
    frame = request(spec, bytes(4))
    assert request_body_offset(spec, frame, 0, len(frame)) == 12
    assert client_id(spec, frame, 0) == ""


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (string(None), ""),
        (struct.pack(">h", -32768), ""),
        (string(b""), ""),
        (string("żółw".encode()), "żółw"),
        (string(b"\xff\xfe"), "\ufffd\ufffd"),
        (string(b"ab\xc3"), "ab\ufffd"),
    ],
)
def test_client_id_is_read_from_the_request_header(written: bytes, read: str) -> None:
    assert client_id(V1, BEFORE + request(V1, written), len(BEFORE)) == read


def test_header_over_the_bound_is_refused() -> None:
    header = string(b"x") + tags(MAX_HEADER_BYTES)
    frame = request(V2, header + bytes(10))
    assert request_body_offset(V2, frame[:MAX_HEADER_BYTES], 0, len(frame)) == -1
    with pytest.raises(ProtocolError) as refused:
        request_body_offset(V2, frame, 0, len(frame))
    assert refused.value.cause is Cause.HEADER_TOO_LARGE


def test_number_of_header_tags_is_bounded() -> None:
    most = request(V2, string(b"x") + tags(*[0] * MAX_TAGS))
    assert request_body_offset(V2, most, 0, len(most)) == len(most)
    frame = request(V2, string(b"x") + tags(*[0] * (MAX_TAGS + 1)))
    with pytest.raises(ProtocolError) as refused:
        request_body_offset(V2, frame[:20], 0, len(frame))
    assert refused.value.cause is Cause.HEADER_TOO_LARGE


def test_overlong_varint_of_header_tags_is_refused() -> None:
    frame = request(V2, string(b"x") + b"\x80" * 5 + b"\x00")
    with pytest.raises(ProtocolError) as refused:
        request_body_offset(V2, frame, 0, len(frame))
    assert refused.value.cause is Cause.BAD_HEADER


def test_largest_allowed_header_is_read() -> None:
    header = string(b"x" * 32767) + tags(MAX_HEADER_BYTES - 14 - 32767 - 1 - 1 - 3)
    frame = request(V2, header + b"body")
    assert request_body_offset(V2, frame, 0, len(frame)) == MAX_HEADER_BYTES


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("transactional_id", [None, b"", b"tx", b"t" * 127, b"t" * 300])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_produce_acks_are_read_once_complete(version: int, transactional_id: bytes | None, acks: int) -> None:
    spec = PRODUCE[version]
    body = b""
    if version >= 9:
        body = encode_varint(0 if transactional_id is None else len(transactional_id) + 1) + (transactional_id or b"")
    elif version >= 3:
        body = string(transactional_id)
    offset = 20 + len(body)
    data = bytes(20) + body + struct.pack(">h", acks) + bytes(4)
    assert produce_acks(spec, data, 20, len(data)) == acks
    assert produce_acks_offset(spec, data + b"more", 20, len(data)) == offset
    for length in range(20, offset + 2):
        assert produce_acks(spec, data[:length], 20, len(data)) is None
        for behind in (b"", bytes(500), b"\xff" * 4):
            with pytest.raises(ProtocolError):
                produce_acks(spec, data[:length] + behind, 20, length)


def test_produce_with_oversized_transactional_id_is_refused() -> None:
    body = encode_varint(MAX_HEADER_BYTES + 2)
    with pytest.raises(ProtocolError) as refused:
        produce_acks(PRODUCE[9], body, 0, 10**6)
    assert refused.value.cause is Cause.HEADER_TOO_LARGE


@given(st.binary(max_size=12), st.integers(0, 13), st.integers(0, 12))
def test_produce_acks_of_arbitrary_bytes_raise_only_protocol_errors(body: bytes, version: int, missing: int) -> None:
    end = len(body) + missing
    try:
        acks = produce_acks(PRODUCE[version], body, 0, end)
    except ProtocolError:
        return
    assert acks is not None or missing


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.name == "Fetch"], ids=repr)
def test_fetch_limits_are_where_the_layout_has_them(spec: ApiSpec) -> None:
    if "max_bytes:i32 " not in spec.request_layout.partition("[")[0]:
        assert not has_fetch_limits(spec)
        return
    assert has_fetch_limits(spec)
    body = bytes(100)
    assert fetch_limits_offset(spec, body, 30, 100) == 30 + (fixed_offset(spec.request_layout, "min_bytes") or 0)
    assert fetch_limits_offset(spec, body, 30, 100) + 4 == 30 + (fixed_offset(spec.request_layout, "max_bytes") or 0)
    assert fetch_limits_offset(spec, body[:40], 30, 100) == -1
    with pytest.raises(ProtocolError):
        fetch_limits_offset(spec, body, 30, 40)


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.name == "ShareFetch"], ids=repr)
@pytest.mark.parametrize("member", [b"\0", b"\1", b"\4abc", b"\x81\1" + bytes(128)])
def test_share_fetch_limits_are_behind_group_member_epoch_and_wait(spec: ApiSpec, member: bytes) -> None:
    body = b"\3gg" + member + bytes(8) + b"LIMITS.." + bytes(10)
    at = fetch_limits_offset(spec, body, 0, len(body))
    assert body[at : at + 8] == b"LIMITS.."
    for cut in range(at + 8):
        assert fetch_limits_offset(spec, body[:cut], 0, len(body)) == -1
