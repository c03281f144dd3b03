"""A response walked through in pieces becomes what it becomes in one, keeps its size, and names no broker by itself."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.compile import Endpoint
from protocol.errors import Cause, ProtocolError
from protocol.frame_end import filler
from protocol.locator import locate, response_body_offset, rewrite
from protocol.outline import Outline
from protocol.overlay import FETCH, SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.resumable_walk import MOST_HELD_BYTES, ResumableWalk, names_nobody
from protocol.rewriting import MOST_LOOKED_UP
from protocol.table import SPECS, ApiSpec, key_version
from protocol.varint import decode_varint
from tests.harness.examples import examples
from tests.protocol.encode import encode_frame
from tests.protocol.fuzz import mutated
from tests.protocol.messages import responses
from tests.protocol.oracles import Kio

WALKED = [spec for spec in SPECS.values() if spec.api_key in (FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE) and spec.endpoints]
OUTLINES = {spec.number: Outline(spec) for spec in WALKED}
FETCH_17 = SPECS[key_version(FETCH, 17)]
each_version = pytest.mark.parametrize("spec", WALKED, ids=repr)

Told = dict[int, tuple[bytes, int]]
TOLD: Told = {
    1: (b"proxy", 9101),
    2: (b"p", 1),
    3: (b"h" * 14, 7),
    4: (b"proxy.far-longer-than-any-broker.example", 9104),
}
HIDDEN = b"kafka-x.hidden"  # 14 bytes: TOLD has shorter, equal and longer ones


def broker(node_id: int, **more: Any) -> dict[str, Any]:
    return {"node_id": node_id, "host": HIDDEN.decode(), "port": 9092, "rack": "rack-a"} | more


def partition(spec: ApiSpec, records: bytes | None, **more: Any) -> dict[str, Any]:
    common: dict[str, Any] = {
        "partition_index": 7,
        "error_code": 6,
        "records": records,
        "error_message": "not the leader",
    }
    if spec.api_key == FETCH:
        aborted = [{"producer_id": 1, "first_offset": 2, "_unknown_tags": {9: b"abc"}}, {"producer_id": 3}]
        tags: dict[str, Any] = {
            "diverging_epoch": {"epoch": 1, "end_offset": 2},
            "current_leader": {"leader_id": 2, "leader_epoch": 1},
        }
        common |= tags | {"aborted_transactions": aborted, "preferred_read_replica": 5}
    else:
        acquired = [{"first_offset": 1, "last_offset": 2, "delivery_count": 1}] * 2
        common |= {"current_leader": {"leader_id": 2, "leader_epoch": 1}, "acquired_records": acquired}
    return common | more


def frame_of(spec: ApiSpec, brokers: Sequence[dict[str, Any]], blobs: Sequence[bytes | None], **more: Any) -> bytes:
    """Return a frame with two topics, a partition for each blob in both of them."""
    topic = {"topic_id": bytes(16), "partitions": [partition(spec, blob) for blob in blobs]}
    empty = {"topic_id": bytes(range(16)), "partitions": [], "_unknown_tags": {3: b"x" * 200}}
    values: dict[str, Any] = {"throttle_time_ms": 5, "responses": [topic, empty, topic], **more}
    if brokers:
        values["node_endpoints"] = list(brokers)
    return encode_frame(spec, values)


def walk_of(spec: ApiSpec, frame: bytes, told: Told) -> ResumableWalk:
    return ResumableWalk(
        OUTLINES[spec.number],
        int.from_bytes(frame[:4], "big", signed=True),
        lambda endpoint: told.get(endpoint.node_id),
    )


def walked(spec: ApiSpec, pieces: Sequence[bytes], told: Told = TOLD) -> bytes:
    """Walk through a frame in pieces, as a session does."""
    walk = walk_of(spec, b"".join(pieces[:4]), told)
    out = b""
    for piece in pieces:
        if walk.opaque >= len(piece):  # the fast path: nothing is read
            walk.pass_over(len(piece))
            out += piece
            continue
        left = walk.left
        stop, written = walk.take(piece, 0)
        out += piece[:stop] + written
        assert 0 <= walk.left == max(left - len(piece), 0)
    assert walk.left == 0
    return out


def cut(frame: bytes, cuts: Sequence[int]) -> list[bytes]:
    return [frame[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True)]


def named(spec: ApiSpec, frame: bytes) -> list[tuple[int, bytes, int]]:
    return [(each.node_id, each.host, each.port) for each in locate(spec, frame).endpoints]


def end_of(spec: ApiSpec, frame: bytes) -> int:
    """Where the end with the addresses begins, by the whole-frame locator and a frame without them."""
    located = locate(spec, frame)
    if located.tags:
        return located.tags[0].size_offset - 2  # behind the count of tags and the tag, a byte each
    return located.endpoints[0].id_offset - (2 if len(located.endpoints) > 126 else 1)


BLOBS: list[Sequence[bytes | None]] = [
    (),
    (None,),
    (b"",),
    (b"r",),
    (b"r" * 126, b"s" * 127),
    (b"r" * 20_000, None, b"t"),
]


@each_version
@pytest.mark.parametrize("blobs", BLOBS, ids=lambda blobs: str([len(blob or b"") for blob in blobs]))
def test_a_frame_without_brokers_is_kept(spec: ApiSpec, blobs: Sequence[bytes | None]) -> None:
    frame = frame_of(spec, (), blobs)
    assert walked(spec, [frame]) == frame
    walk = walk_of(spec, frame, TOLD)
    assert walk.take(frame, 0) == (len(frame), b"")
    assert names_nobody(OUTLINES[spec.number], b"front" + frame + b"more", 5, len(frame) - 4)


@each_version
def test_an_answer_without_topics_and_one_of_a_session_that_is_gone(spec: ApiSpec) -> None:
    for frame in (encode_frame(spec, {}), encode_frame(spec, {"error_code": 71, "throttle_time_ms": 7})):
        for at in range(1, len(frame)):
            assert walked(spec, cut(frame, [at])) == frame


@each_version
@pytest.mark.parametrize("ids", [(3,), (3, 3)], ids=str)
def test_addresses_of_equal_length_are_what_the_whole_frame_rewriting_writes(spec: ApiSpec, ids: Sequence[int]) -> None:
    frame = frame_of(spec, [broker(node_id) for node_id in ids], (b"r" * 300,), _unknown_tags={9: b"kept"})
    assert walked(spec, [frame]) == rewrite(spec, frame, None, TOLD)


@each_version
@pytest.mark.parametrize("rack", [None, "", "r"], ids=repr)
@pytest.mark.parametrize("length", range(30))
def test_each_length_of_an_address(spec: ApiSpec, length: int, rack: str | None) -> None:
    """The frame keeps its size; brokers are named as told, or not at all if there is no room."""
    told = {1: (b"a" * length, 1), 2: (b"b" * 14, 2)}
    frame = frame_of(spec, [broker(1, rack=rack), broker(2, rack=rack), broker(9)], (b"r",), _unknown_tags={9: b"kept"})
    begin = end_of(spec, frame)
    out = walked(spec, [frame], told)
    assert len(out) == len(frame)
    assert out[:begin] == frame[:begin]
    assert HIDDEN not in out[begin:]
    assert b"\x09\x04kept" in out[begin:]
    expected = [(1, *told[1]), (2, *told[2])]
    assert named(spec, out) in (expected, expected[:1])
    if length <= 14 + 18:  # node 9 is unknown and leaves room
        assert named(spec, out) == expected


@pytest.mark.parametrize("size", [*range(2, 140), *range(16_380, 16_395), *range(2_097_145, 2_097_165), 2**27])
def test_each_size_can_be_filled(size: int) -> None:
    begin = filler(size)
    tag, position = decode_varint(begin, 0)
    content, position = decode_varint(begin, position)
    assert tag in (127, 16_383)
    assert position == len(begin)
    assert position + content == size


@each_version
def test_one_byte_cannot_be_filled(spec: ApiSpec) -> None:
    frame = frame_of(spec, [broker(2), broker(1)], ())
    told = {1: (b"x" * 13, 1), 2: (b"y" * 14, 2)}
    out = walked(spec, [frame], told)
    assert len(out) == len(frame)
    assert named(spec, out) == [(2, b"y" * 14, 2)]


@each_version
def test_endpoints_for_which_there_is_no_room_are_left_out(spec: ApiSpec) -> None:
    frame = frame_of(spec, [broker(4), broker(4)], (b"r",))
    assert named(spec, walked(spec, [frame])) == [(4, *TOLD[4])]
    frame = frame_of(spec, [broker(4)], (b"r",))
    assert named(spec, walked(spec, [frame])) == []
    assert len(walked(spec, [frame])) == len(frame)


@each_version
def test_unknown_nodes_are_left_out_and_those_without_a_host_kept(spec: ApiSpec) -> None:
    frame = frame_of(spec, [broker(77), broker(-1, host="", port=-1, rack=None)], ())
    assert named(spec, walked(spec, [frame])) == [(-1, b"", -1)]


@each_version
def test_an_end_too_long_to_hold_names_nobody(spec: ApiSpec) -> None:
    brokers = [broker(number % 3 + 1) for number in range(1 + MOST_HELD_BYTES // 28)]
    frame = frame_of(spec, brokers, (b"r" * 100,), _unknown_tags={9: b"lost"})
    begin = end_of(spec, frame)
    assert len(frame) - begin > MOST_HELD_BYTES
    out = walked(spec, [frame])
    assert len(out) == len(frame)
    assert out[:begin] == frame[:begin]
    assert named(spec, out) == []
    assert HIDDEN not in out[begin:]
    for width in (1, 7, 1000):
        assert walked(spec, cut(frame, range(width, len(frame), width))) == out


@each_version
def test_few_are_looked_up(spec: ApiSpec) -> None:
    asked: list[Endpoint] = []
    frame = frame_of(spec, [broker(number) for number in range(150)], ())

    def told(endpoint: Endpoint) -> tuple[bytes, int]:
        asked.append(endpoint)
        return b"h", 1

    ResumableWalk(OUTLINES[spec.number], len(frame) - 4, told).take(frame, 0)
    assert len(asked) == MOST_LOOKED_UP


@each_version
def test_clients_read_what_comes_out(spec: ApiSpec) -> None:
    """By another codec. (kio knows no unknown tag, so this needs addresses for which no filler is needed.)"""
    kio = Kio()
    if not kio.knows(spec):
        pytest.skip("kio has not this version")
    frame = encode_frame(spec, {"responses": [], "node_endpoints": [broker(3)]})
    body = response_body_offset(spec, frame, 0)
    before, _ = kio.read(spec, frame[body:])
    after, _ = kio.read(spec, walked(spec, [frame])[body:])
    assert after == before | {"node_endpoints": ({**before["node_endpoints"][0], "host": "h" * 14, "port": 7},)}


def goldens(spec: ApiSpec) -> Iterator[bytes]:
    yield frame_of(spec, (), (b"r" * 130, None))
    yield frame_of(spec, [broker(1), broker(4), broker(77)], (b"r" * 130,), _unknown_tags={9: b"kept", 200: b""})
    yield frame_of(spec, [broker(3)], ())


@each_version
def test_an_answer_cut_in_two_anywhere_is_written_the_same(spec: ApiSpec) -> None:
    for frame in goldens(spec):
        whole = walked(spec, [frame])
        for at in range(1, len(frame)):
            assert walked(spec, cut(frame, [at])) == whole, at
        for width in (1, 2, 3, 5, 17):
            assert walked(spec, cut(frame, range(width, len(frame), width))) == whole, width


@examples(3)
@given(data=st.data())
def test_any_response_in_any_pieces(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(WALKED))
    frame = encode_frame(spec, data.draw(responses(spec)))
    told = data.draw(
        st.dictionaries(st.integers(-1, 9), st.tuples(st.binary(min_size=1, max_size=40), st.integers(0, 65535)))
    )
    whole = walked(spec, [frame], told)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(frame) - 1), max_size=20)))
    assert walked(spec, cut(frame, cuts), told) == whole
    assert len(whole) == len(frame)
    addresses = {(node_id, *address) for node_id, address in told.items()}
    assert all(each in addresses or not each[1] for each in named(spec, whole))
    if not locate(spec, frame).endpoints:
        assert whole == frame


@each_version
def test_frames_that_follow_in_the_same_chunk(spec: ApiSpec) -> None:
    frame, told = frame_of(spec, [broker(1)], (b"r" * 50,)), TOLD
    whole = walked(spec, [frame])
    for at in range(1, len(frame)):
        walk = walk_of(spec, frame, told)
        stop, written = walk.take(frame[:at], 0)
        out, left = frame[:stop] + written, walk.left
        assert left == len(frame) - at
        chunk = b"front" + frame[at:] + frame
        stop, written = walk.take(chunk, 5)
        assert out + chunk[5:stop] + written == whole
        assert walk.left == 0


@each_version
def test_a_claim_beyond_the_frame_is_refused(spec: ApiSpec) -> None:
    """A count or a length beyond the frame's end is refused with the chunk that has it; nothing is allocated for it."""
    frame = frame_of(spec, (), (b"r" * 40,))
    for at in range(8, min(len(frame), 120)):
        for claim in (
            b"\xff\xff\xff\xff\x07",
            b"\xff\xff\xff\xff\x0f",
            b"\xff\xff\xff\x7f",
            b"\xff\xff\xff\xff\xff\x01",
        ):
            changed = frame[:at] + claim + frame[at + 1 :]
            changed = (len(changed) - 4).to_bytes(4, "big") + changed[4:]
            with contextlib.suppress(ProtocolError):  # where it is read as a field of fixed length, it claims nothing
                walked(spec, [changed])


@pytest.mark.parametrize(
    ("at", "claim", "text"),
    [
        (8, b"\x20", "32 tagged fields are claimed"),
        (19, b"\x7f", "126 elements are claimed"),
        (19, b"\x80\x80\x80\x80\x80", "varint of more than 5 bytes"),
    ],
)
def test_the_error_says_what_and_where(at: int, claim: bytes, text: str) -> None:
    frame = encode_frame(FETCH_17, {})
    frame = frame[:at] + claim + frame[at + 1 :]
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    with pytest.raises(ProtocolError, match=text) as raised:
        walked(FETCH_17, [frame])
    assert raised.value.cause == Cause.BAD_BODY
    assert f"{len(frame) - at - len(claim)} bytes before its end" in str(raised.value)


@each_version
def test_a_truncated_answer_is_refused_at_every_size(spec: ApiSpec) -> None:
    """A frame whose size is that of a part of it."""
    frame = frame_of(spec, [broker(1)], (b"r" * 50,))
    for size in range(5, len(frame)):
        part = (size - 4).to_bytes(4, "big") + frame[4:size]
        with pytest.raises(ProtocolError):
            walked(spec, [part])


@each_version
def test_bytes_behind_the_end(spec: ApiSpec) -> None:
    for brokers in ([], [broker(3)]):
        frame = frame_of(spec, brokers, ()) + b"\0"
        with pytest.raises(ProtocolError, match="does not end where its size says"):
            walked(spec, [(len(frame) - 4).to_bytes(4, "big") + frame[4:]])


@each_version
def test_an_answer_changed_anywhere_is_refused_or_keeps_its_size(spec: ApiSpec) -> None:
    """An error, or the same size and no address of a broker; the same in pieces, up to the piece that is wrong."""
    chance = random.Random(spec.number)
    refused = accepted = 0
    for round_ in range(1500):
        frame = list(goldens(spec))[round_ % 3]
        data = bytearray(mutated(frame, chance))
        if len(data) < 12:
            continue
        data[:4] = (len(data) - 4).to_bytes(4, "big")
        changed = bytes(data)
        cuts = sorted(chance.sample(range(1, len(changed)), k=3))
        try:
            out = walked(spec, [changed])
        except ProtocolError:
            refused += 1
            with pytest.raises(ProtocolError):
                walked(spec, cut(changed, cuts))
            continue
        accepted += 1
        assert walked(spec, cut(changed, cuts)) == out
        assert len(out) == len(changed)
        told = {(node_id, *address) for node_id, address in TOLD.items()}
        with contextlib.suppress(ProtocolError):  # the locator refuses a null where the walk leaves that to the client
            assert all(each in told or not each[1] for each in named(spec, out))
    assert min(refused, accepted) > 100, (refused, accepted)


@given(data=st.binary(min_size=8, max_size=200), spec=st.sampled_from(WALKED))
def test_any_bytes_are_refused_or_keep_their_size(data: bytes, spec: ApiSpec) -> None:
    frame = (len(data)).to_bytes(4, "big") + data
    with contextlib.suppress(ProtocolError):
        assert len(walked(spec, [frame])) == len(frame)
