"""Playbooks of long answers that name brokers behind their records: nothing but their end is held."""

import tracemalloc
from collections.abc import Sequence
from struct import pack
from typing import Any

import pytest

from protocol.compile import SLICE_BYTES
from protocol.errors import Cause
from protocol.locator import locate, read_throttle, rewrite
from protocol.overlay import FETCH, SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.table import SPECS, ApiSpec
from tests.protocol.encode import encode_frame
from tests.proxy.playbook import ADDRESSES, CONSUMER, KIB, Play, list_offsets, list_offsets_answer, request

WALKED = [
    spec
    for spec in SPECS.values()
    if spec.api_key in (FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE) and spec.endpoints and spec.advertised
]
WITH_RECORDS = [spec for spec in WALKED if spec.api_key != SHARE_ACKNOWLEDGE]
each_version = pytest.mark.parametrize("spec", WALKED, ids=repr)
each_with_records = pytest.mark.parametrize("spec", WITH_RECORDS, ids=repr)
HOST = "k" * len(ADDRESSES[1][0])
"""Of the length of the proxy's: what is rewritten in place is what a whole frame becomes."""


def ask(spec: ApiSpec, correlation_id: int = 1) -> bytes:
    return request(spec.api_key, spec.api_version, correlation_id, b"\0\0\1" + bytes(40))


def answer(spec: ApiSpec, bytes_: int, *, brokers: bool, correlation_id: int = 1, host: str = HOST) -> bytes:
    """Return an answer of about ``bytes_``: records, or in ShareAcknowledge texts of errors."""
    blob: dict[str, Any] = {"error_message": "e" * bytes_} if spec.api_key == SHARE_ACKNOWLEDGE else {}
    partition = blob or {"records": bytes(bytes_), "error_code": 6}
    values: dict[str, Any] = {"responses": [{"topic_id": bytes(16), "partitions": [partition] * 2}]}
    if brokers:
        values["node_endpoints"] = [{"node_id": 1, "host": host, "port": 9092}]
    whole = encode_frame(spec, values)
    return whole[:4] + pack(">i", correlation_id) + whole[8:]


def cut(stream: bytes, edges: Sequence[int]) -> list[bytes]:
    return [stream[start:stop] for start, stop in zip([0, *edges], [*edges, len(stream)], strict=True)]


@each_version
@pytest.mark.parametrize("brokers", [False, True], ids=["nobody", "brokers"])
def test_long_short_long_cut_anywhere(spec: ApiSpec, brokers: bool) -> None:
    sizes = {1: SLICE_BYTES, 2: 10, 3: SLICE_BYTES}
    answers = {number: answer(spec, size, brokers=brokers, correlation_id=number) for number, size in sizes.items()}
    stream = b"".join(answers.values()) + list_offsets_answer(4)
    expected = b"".join(rewrite(spec, each, None, ADDRESSES) for each in answers.values()) + list_offsets_answer(4)
    borders = [sum(len(answers[each]) for each in range(1, number + 1)) for number in sizes]
    edges = {at for border in (0, *borders) for at in range(border - 70, border + 70) if 0 < at < len(stream)}
    for at in sorted(edges):
        play = Play()
        play.from_client(b"".join(ask(spec, number) for number in sizes) + list_offsets(4))
        out = b"".join(play.from_broker(piece) for piece in cut(stream, [at]))
        assert out == expected, at
        assert not play.session.in_flight
        assert play.session.idle


@each_version
@pytest.mark.parametrize("width", [7, 1000, SLICE_BYTES + 3])
def test_pieces_of_equal_width(spec: ApiSpec, width: int) -> None:
    whole = answer(spec, SLICE_BYTES, brokers=True)
    play = Play()
    play.from_client(ask(spec) + list_offsets(2))
    stream = whole + list_offsets_answer(2)
    out = b"".join(play.from_broker(piece) for piece in cut(stream, range(width, len(stream), width)))
    assert out == rewrite(spec, whole, None, ADDRESSES) + list_offsets_answer(2)


@each_version
def test_all_but_the_end_passes_as_it_comes(spec: ApiSpec) -> None:
    whole = answer(spec, 100 * KIB, brokers=True)
    play = Play()
    play.from_client(ask(spec))
    for piece in cut(whole, range(64 * KIB, len(whole) - 100, 64 * KIB))[:-1]:
        assert play.from_broker(piece) == piece


@each_version
def test_a_longer_address_is_left_out_of_a_long_answer_and_stands_in_a_short_one(spec: ApiSpec) -> None:
    for size, told in ((SLICE_BYTES, []), (10, [ADDRESSES[1]])):
        whole = answer(spec, size, brokers=True, host="k")
        play = Play()
        play.from_client(ask(spec))
        out = play.from_broker(whole)
        assert [(each.host, each.port) for each in locate(spec, out).endpoints] == told
        assert len(out) == len(whole) or told


@each_version
def test_drain_waits_within_the_end(spec: ApiSpec) -> None:
    whole = answer(spec, SLICE_BYTES, brokers=True)
    play = Play()
    play.from_client(ask(spec))
    out = play.from_broker(whole[:-3])
    assert len(out) < len(whole) - 3
    assert not play.session.idle
    play.session.drain()
    assert not play.client.closed
    out += play.from_broker(whole[-3:])
    assert out == rewrite(spec, whole, None, ADDRESSES)
    assert play.client.closed


@each_version
def test_a_malformed_end_closes_the_session_before_it_is_passed_on(spec: ApiSpec) -> None:
    whole = answer(spec, SLICE_BYTES, brokers=True)
    broken = (len(whole) - 5).to_bytes(4, "big") + whole[4:-1]
    play = Play()
    play.from_client(ask(spec))
    out = play.from_broker(broken[:-10]) + play.from_broker(broken[-10:])
    assert HOST.encode() not in out
    ((side, error),) = play.rejected
    assert (side, error.cause) == ("broker", Cause.BAD_BODY)


@each_with_records
def test_a_claim_beyond_the_frame_closes_the_session_with_its_chunk(spec: ApiSpec) -> None:
    whole = answer(spec, SLICE_BYTES, brokers=False)
    broken = (SLICE_BYTES + 100).to_bytes(4, "big") + whole[4:]
    play = Play()
    play.from_client(ask(spec))
    assert play.from_broker(broken[:SLICE_BYTES]) == broken[:SLICE_BYTES]
    assert play.from_broker(broken[SLICE_BYTES:]) == b""
    assert play.rejected[0][1].cause == Cause.BAD_BODY


@each_with_records
@pytest.mark.parametrize("brokers", [False, True], ids=["nobody", "brokers"])
def test_throttle_is_told_in_front_and_the_address_behind(spec: ApiSpec, brokers: bool) -> None:
    whole = answer(spec, 20 * KIB, brokers=brokers)
    play = Play({CONSUMER: KIB})
    play.from_client(ask(spec))
    play.loop.advance(0)
    out = play.from_broker(whole)
    told_ms = read_throttle(spec, out)
    assert told_ms is not None
    assert told_ms > 9000
    assert out == rewrite(spec, whole, told_ms, ADDRESSES)
    assert play.client.paused
    (usage,) = play.engine.usage(play.loop.now_ms)
    assert usage.charged_total == len(whole) - 5


@pytest.mark.long
@each_with_records
def test_100_mib_pass_with_little_held(spec: ApiSpec) -> None:
    whole, chunk_bytes, got = answer(spec, 50 * 2**20, brokers=True), 64 * KIB, 0
    play = Play()
    play.session.answers.splitter.limit = len(whole)
    play.from_client(ask(spec))
    tracemalloc.start()
    try:
        for at in range(0, len(whole), chunk_bytes):
            got += len(play.from_broker(whole[at : at + chunk_bytes]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (got, play.rejected) == (len(whole), [])
    assert peak < 2 * chunk_bytes + 16 * KIB  # a chunk on its way, in and out
