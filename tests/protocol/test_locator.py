import pytest

from protocol.errors import ProtocolError
from protocol.locator import (
    Endpoint,
    locate,
    patch_throttle,
    read_throttle,
    response_body_offset,
    rewrite,
    splice,
    throttle_position,
)
from protocol.table import ABSENT, SPECS, WALK, ApiSpec, key_version
from tests.protocol.encode import encode_frame

METADATA_V1, METADATA_V12 = SPECS[key_version(3, 1)], SPECS[key_version(3, 12)]
PRODUCE_V8, PRODUCE_V11 = SPECS[key_version(0, 8)], SPECS[key_version(0, 11)]
FETCH_V11, FETCH_V16 = SPECS[key_version(1, 11)], SPECS[key_version(1, 16)]
FIND_COORDINATOR_V1 = SPECS[key_version(10, 1)]
OFFSET_DELETE = SPECS[key_version(47, 0)]
SASL_HANDSHAKE = SPECS[key_version(17, 1)]

PARTITIONS = {"responses": [{"name": "orders", "partition_responses": [{"base_offset": 7}] * 3}]}


def broker(node_id: int, host: str, port: int = 9092) -> dict[str, object]:
    return {"node_id": node_id, "host": host, "port": port, "rack": "r1"}


def with_overlong_lengths(frame: bytes, offsets: list[int]) -> bytes:
    """Write one-byte varints at these offsets with a second byte, and the frame's size anew."""
    for offset in sorted(offsets, reverse=True):
        frame = frame[:offset] + bytes((frame[offset] | 0x80, 0)) + frame[offset + 1 :]
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


@pytest.mark.parametrize("spec", SPECS.values(), ids=repr)
def test_every_version_gets_its_throttle(spec: ApiSpec) -> None:
    frame = encode_frame(spec, {"throttle_time_ms": 1})
    if spec.throttle_offset == ABSENT:
        assert read_throttle(spec, frame) is None
        assert patch_throttle(spec, frame, 77) is frame
        return
    assert read_throttle(spec, frame) == 1
    assert patch_throttle(spec, frame, 77) == encode_frame(spec, {"throttle_time_ms": 77})
    if spec.throttle_offset != WALK:
        assert throttle_position(spec, frame, 0, len(frame)) == locate(spec, frame).throttle_offset


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.endpoints], ids=repr)
@pytest.mark.parametrize("host", ["b", "b" * 126, "b" * 127, "b" * 20000], ids=len)
def test_every_version_gets_its_addresses(spec: ApiSpec, host: str) -> None:
    def frame(told: dict[int, tuple[str, int]]) -> bytes:
        brokers = [broker(node_id, *address) | {"broker_id": node_id} for node_id, address in told.items()]
        path = spec.endpoint_path or ""
        values = {path.split(" ")[-1]: brokers} if path else brokers[0]
        return encode_frame(spec, {"throttle_time_ms": 5, **values})

    before = frame({3: ("kafka-3.internal", 9092), 5: ("kafka-5.internal", 9093)})
    after = frame({3: (host, 1), 5: (host, 2)})
    addresses = {3: (host.encode(), 1), 5: (host.encode(), 2), 9: (b"nobody", 3)}
    assert rewrite(spec, before, None, addresses) == after
    assert rewrite(spec, after, None, {3: (b"kafka-3.internal", 9092), 5: (b"kafka-5.internal", 9093)}) == before


def test_locator_finds_throttle_and_broker_addresses() -> None:
    frame = encode_frame(METADATA_V12, {"brokers": [broker(1, "h", 2)]})
    located = locate(METADATA_V12, frame)
    assert located.throttle_offset == 9
    assert located.endpoints == [Endpoint(1, b"h", 2, id_offset=14, host_offset=18, port_offset=20)]


@pytest.mark.parametrize("spec", [METADATA_V1, METADATA_V12], ids=repr)
@pytest.mark.parametrize("node_id", [-1, -2147483648, 2147483647, 4])
def test_unknown_broker_is_rewritten_to_an_unresolvable_name(spec: ApiSpec, node_id: int) -> None:
    frame = encode_frame(spec, {"brokers": [broker(node_id, "h"), broker(1, "h")]})
    told = [broker(node_id, f"node-id-{node_id}-is-not-known-to-sluice.invalid", 0), broker(1, "x", 1)]
    assert rewrite(spec, frame, None, {1: (b"x", 1)}) == encode_frame(spec, {"brokers": told})


def test_empty_coordinator_address_is_not_rewritten() -> None:
    frame = encode_frame(FIND_COORDINATOR_V1, {"node_id": 1, "host": "", "port": -1})
    assert rewrite(FIND_COORDINATOR_V1, frame, None, {1: (b"x", 1)}) is frame


def test_throttle_and_addresses_are_rewritten_together() -> None:
    frame = encode_frame(PRODUCE_V11, PARTITIONS | {"node_endpoints": [broker(1, "h")], "throttle_time_ms": 3})
    expected = encode_frame(PRODUCE_V11, PARTITIONS | {"node_endpoints": [broker(1, "xx", 7)], "throttle_time_ms": 9})
    assert splice(frame, locate(PRODUCE_V11, frame), 9, {1: (b"xx", 7)}) == expected


def test_overlong_lengths_that_stay_valid_are_kept() -> None:
    frame = encode_frame(METADATA_V12, {"brokers": [broker(1, "host"), broker(2, "host")]})
    offsets = [endpoint.host_offset for endpoint in locate(METADATA_V12, frame).endpoints]
    overlong = with_overlong_lengths(frame, [13, *offsets])  # the count of brokers, and both hosts
    changed = rewrite(METADATA_V12, overlong, None, {1: (b"HOST", 9092), 2: (b"longer", 9092)})
    assert changed[13:15] == b"\x83\x00"
    assert changed.count(b"\x85\x00HOST") == 1
    assert changed.count(b"\x07longer") == 1
    assert [endpoint.host for endpoint in locate(METADATA_V12, changed).endpoints] == [b"HOST", b"longer"]


def test_unknown_tags_survive_a_rewrite() -> None:
    def frame(host: str) -> bytes:
        partitions = [{"base_offset": 7, "_unknown_tags": {3: b"partition", 200: b"x" * 200}}]
        endpoints = [broker(1, host) | {"_unknown_tags": {1: b"endpoint"}}]
        responses = [{"name": "orders", "partition_responses": partitions, "_unknown_tags": {8: b""}}]
        values = {"responses": responses, "node_endpoints": endpoints, "_unknown_tags": {1: b"root", 9: b"more"}}
        return encode_frame(PRODUCE_V11, values)

    assert rewrite(PRODUCE_V11, frame("h"), None, {1: (b"another.host", 9092)}) == frame("another.host")


def test_every_occurrence_of_a_tag_is_rewritten() -> None:
    once = encode_frame(PRODUCE_V11, {"node_endpoints": [broker(1, "h")]})
    (tag,) = locate(PRODUCE_V11, once).tags
    field = once[tag.size_offset - 1 :]
    twice = once[: tag.size_offset - 2] + b"\x02" + field * 2
    frame = (len(twice) - 4).to_bytes(4, "big") + twice[4:]
    changed = rewrite(PRODUCE_V11, frame, None, {1: (b"xx", 7)})
    assert [(endpoint.host, endpoint.port) for endpoint in locate(PRODUCE_V11, changed).endpoints] == [(b"xx", 7)] * 2


def test_fetched_records_are_skipped_by_the_locator() -> None:
    def frame(host: str) -> bytes:
        partitions = [{"records": bytes(range(256)) * 300, "aborted_transactions": None}] * 3
        responses = [{"topic_id": bytes(16), "partitions": partitions}]
        return encode_frame(FETCH_V16, {"responses": responses, "node_endpoints": [broker(1, host)]})

    assert rewrite(FETCH_V16, frame("h"), None, {1: (b"elsewhere", 9092)}) == frame("elsewhere")


def test_locator_reads_nothing_behind_the_last_address() -> None:
    frame = encode_frame(METADATA_V12, {"brokers": [broker(1, "h")]})
    end = locate(METADATA_V12, frame).endpoints[0].port_offset + 4 + 4  # rack, tags
    assert locate(METADATA_V12, frame[:end] + b"\xff" * 50).endpoints == locate(METADATA_V12, frame).endpoints


@pytest.mark.parametrize("spec", [METADATA_V1, METADATA_V12, PRODUCE_V8, PRODUCE_V11, FETCH_V16], ids=repr)
def test_cut_response_is_refused_or_located_alike(spec: ApiSpec) -> None:
    brokers = [broker(1, "host")]
    frame = encode_frame(spec, PARTITIONS | {"brokers": brokers, "node_endpoints": brokers, "throttle_time_ms": 7})
    whole = locate(spec, frame)
    for length in range(len(frame)):
        try:
            located = locate(spec, frame[:length])
        except ProtocolError:
            continue
        assert located == whole


def test_count_larger_than_the_response_is_refused() -> None:
    for count in ("ffffffff07", "ffffffff0f", "ff7f"):
        with pytest.raises(ProtocolError):
            locate(METADATA_V12, bytes(13) + bytes.fromhex(count) + bytes(100))
    with pytest.raises(ProtocolError):
        locate(METADATA_V1, bytes(8) + b"\x7f\xff\xff\xff" + bytes(100))


def test_header_tags_are_stepped_over() -> None:
    plain = encode_frame(FETCH_V16, {"throttle_time_ms": 7})
    frame = plain[:8] + b"\x01\x05\x03abc" + plain[9:]
    assert response_body_offset(FETCH_V16, frame, 0) == 14
    assert read_throttle(FETCH_V16, frame) == 7
    assert throttle_position(FETCH_V16, frame, 0, len(frame)) == 14


@pytest.mark.parametrize("spec", [FETCH_V11, FETCH_V16, OFFSET_DELETE], ids=repr)
def test_throttle_position_in_a_stream_is_known_once_complete(spec: ApiSpec) -> None:
    before = b"the end of another frame"
    frame = encode_frame(spec, {"throttle_time_ms": 7})
    data, start = before + frame, len(before)
    position = start + locate(spec, frame).throttle_offset
    assert throttle_position(spec, data, start, len(data)) == position
    for length in range(start + 8, len(data)):
        expected = position if length >= position + 4 else -1
        assert throttle_position(spec, data[:length], start, len(data)) == expected
        if expected < 0:
            with pytest.raises(ProtocolError):
                throttle_position(spec, data, start, length)


@pytest.mark.long
def test_large_metadata_response_is_rewritten_whole() -> None:
    brokers = [broker(node_id, f"broker-{node_id}.internal") for node_id in range(100)]
    partition = {"leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    topics = [{"name": f"topic-{number}", "partitions": [partition] * 10} for number in range(1000)]
    told = [broker(node_id, "proxy.example.com", 20000 + node_id) for node_id in range(100)]
    frame = encode_frame(METADATA_V12, {"brokers": brokers, "topics": topics})
    changed = rewrite(METADATA_V12, frame, None, {i: (b"proxy.example.com", 20000 + i) for i in range(100)})
    assert changed == encode_frame(METADATA_V12, {"brokers": told, "topics": topics})


def test_error_35_of_api_versions_has_no_throttle() -> None:
    spec = SPECS[key_version(18, 3)]
    frame = bytes.fromhex("000000100000004d002300000001001200000005")
    assert read_throttle(spec, frame) is None
    assert patch_throttle(spec, frame, 5) is frame


def test_sasl_handshake_is_left_alone() -> None:
    frame = encode_frame(SASL_HANDSHAKE, {"mechanisms": ["PLAIN"]})
    assert rewrite(SASL_HANDSHAKE, frame, 5, {1: (b"x", 1)}) is frame
