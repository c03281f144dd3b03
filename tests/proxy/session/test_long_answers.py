"""Playbooks of answers that take long to change: in slices, in order, and no more of them in memory than needed."""

from collections.abc import Mapping
from itertools import pairwise
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.compile import SLICE_BYTES
from protocol.errors import Cause
from protocol.locator import read_throttle, rewrite
from protocol.table import SPECS, ApiSpec, key_version
from tests.harness.examples import examples
from tests.protocol.encode import encode_frame
from tests.proxy.playbook import ADDRESSES, KIB, PRODUCER, Play, frame, list_offsets, list_offsets_answer, request

FIND_COORDINATOR_V4, METADATA_V1, METADATA_V12 = (SPECS[key_version(*each)] for each in ((10, 4), (3, 1), (3, 12)))
DESCRIBE_CLUSTER_V2 = SPECS[key_version(60, 2)]
PRODUCE_V7, PRODUCE_V11 = SPECS[key_version(0, 7)], SPECS[key_version(0, 11)]
CHUNK_BYTES = 64 * KIB


def broker(node_id: int, host: str = "kafka.internal") -> dict[str, Any]:
    return {"node_id": node_id, "broker_id": node_id, "host": host, "port": 9092}


def ask(spec: ApiSpec, body: bytes = b"", correlation_id: int = 1) -> bytes:
    """Return a request of any API; nobody here looks at its body."""
    tags = b"\0" if spec.request_header_version == 2 else b""
    return request(spec.api_key, spec.api_version, correlation_id, tags + body)


def answer(spec: ApiSpec, values: Mapping[str, Any]) -> bytes:
    return encode_frame(spec, values)


def coordinators(count: int, host: str = "kafka.internal") -> dict[str, Any]:
    return {"coordinators": [{"key": f"group-{number}", **broker(1, host)} for number in range(count)]}


def metadata(topics: int, brokers: int = 3) -> dict[str, Any]:
    partitions = [{"leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}] * 20
    named = [{"name": f"topic-{number}", "partitions": partitions} for number in range(topics)]
    return {"brokers": [broker(1 + number % 2) for number in range(brokers)], "topics": named}


@pytest.mark.parametrize("spec", [METADATA_V1, METADATA_V12, DESCRIBE_CLUSTER_V2], ids=str)
@pytest.mark.parametrize("cluster_id", ["", "x" * 3000], ids=len)
@pytest.mark.parametrize("brokers", [3, 51, 600])
@pytest.mark.parametrize("chunk_bytes", [1000, CHUNK_BYTES])
def test_controller_is_rewritten_in_answers_of_any_length(
    spec: ApiSpec, cluster_id: str, brokers: int, chunk_bytes: int
) -> None:
    values = metadata(40, brokers) | {"cluster_id": cluster_id, "endpoint_type": 1}
    frame, expected = (answer(spec, values | {"controller_id": controller_id}) for controller_id in (2, 1))
    play = Play(names_one_controller=True)
    play.from_client(ask(spec))
    taken = b""
    for at in range(0, len(frame), chunk_bytes):
        taken += play.from_broker(frame[at : at + chunk_bytes])
        play.loop.advance(0)
        taken += play.client.take()
    assert taken == rewrite(spec, expected, None, ADDRESSES)
    assert not play.session.in_flight
    assert not play.rejected


class TestSlices:
    FRAME = answer(FIND_COORDINATOR_V4, coordinators(5000))
    EXPECTED = rewrite(FIND_COORDINATOR_V4, FRAME, None, ADDRESSES)

    @pytest.mark.parametrize("chunk_bytes", [len(FRAME), CHUNK_BYTES, SLICE_BYTES + 1])
    def test_long_answer_is_rewritten_in_slices_and_keeps_order(self, chunk_bytes: int) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4) + list_offsets(2))
        stream = self.FRAME + list_offsets_answer(2)
        for at in range(0, len(stream), chunk_bytes):
            assert play.from_broker(stream[at : at + chunk_bytes]) == b""
        assert play.broker.paused
        turns = 0
        while play.broker.paused:
            assert play.client.take() == b""
            play.loop.turn()
            turns += 1
        assert turns == pytest.approx(len(self.FRAME) / SLICE_BYTES, abs=2)
        assert play.client.take() == self.EXPECTED + list_offsets_answer(2)
        assert not play.session.in_flight

    def test_answer_behind_sliced_answer_waits_for_it(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4) + list_offsets(2))
        assert play.from_broker(self.FRAME) == b""
        assert play.from_broker(list_offsets_answer(2)) == b""  # read before the pause took hold
        play.loop.advance(0)
        assert play.client.take() == self.EXPECTED + list_offsets_answer(2)

    def test_equal_brokers_are_looked_up_once(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4))
        play.from_broker(self.FRAME)
        play.loop.advance(0)
        assert play.told == [1]

    def test_a_session_that_ends_meanwhile_does_nothing_more(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4))
        play.from_broker(self.FRAME)
        play.session.close()
        play.loop.advance(0)
        assert play.client.take() == b""
        assert not play.rejected

    def test_drain_waits_for_the_sliced_answer(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4))
        play.from_broker(self.FRAME)
        play.session.drain()
        assert not play.client.closed
        play.loop.advance(0)
        assert play.client.take() == self.EXPECTED
        assert play.client.closed

    def test_sliced_answer_is_finished_for_blocked_client(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4) + list_offsets(2))
        play.from_broker(self.FRAME)
        play.session.blocked("client", True)
        play.loop.advance(0)
        assert play.broker.paused
        play.session.blocked("client", False)
        assert not play.broker.paused
        assert play.client.take() == self.EXPECTED

    def test_long_answer_broken_at_its_end_closes_the_session(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4))
        payload = self.FRAME[4:-7]
        play.from_broker(frame(payload))
        play.loop.advance(0)
        ((side, error),) = play.rejected
        assert (side, error.cause) == ("broker", Cause.BAD_BODY)
        assert play.client.take() == b""


class TestManyBrokers:
    @pytest.mark.parametrize("spec", [METADATA_V12, FIND_COORDINATOR_V4], ids=repr)
    def test_brokers_of_one_answer_are_learned_in_bounded_turns(self, spec: ApiSpec) -> None:
        field = "brokers" if spec is METADATA_V12 else "coordinators"
        said = answer(spec, {field: [broker(number) for number in range(300)], "throttle_time_ms": 3})
        assert len(said) < SLICE_BYTES
        play = Play()
        play.from_client(ask(spec) + list_offsets(2))
        assert play.from_broker(said + list_offsets_answer(2)) == b""
        turns = 0
        while play.broker.paused:
            before = len(play.told)
            play.loop.turn()
            assert len(play.told) - before <= 50
            turns += 1
        assert turns >= 5
        assert play.client.take() == rewrite(spec, said, None, ADDRESSES) + list_offsets_answer(2)
        assert play.told == list(range(300))


class TestMetadata:
    @pytest.mark.long
    @pytest.mark.parametrize("spec", [METADATA_V1, METADATA_V12], ids=repr)
    def test_metadata_behind_its_last_broker_is_forwarded_without_gathering(self, spec: ApiSpec) -> None:
        """It may be longer than what is gathered, and almost nothing of it is held."""
        play = Play()
        play.worker.gathered_limit = 2 * CHUNK_BYTES
        whole = answer(spec, metadata(topics=1000))
        assert len(whole) > 5 * play.worker.gathered_limit
        play.from_client(ask(spec) + list_offsets(2))
        stream = whole + list_offsets_answer(2)
        out = b""
        for at in range(0, len(stream), CHUNK_BYTES):
            got = play.from_broker(stream[at : at + CHUNK_BYTES])
            assert len(got) == pytest.approx(len(stream[at : at + CHUNK_BYTES]), abs=100)
            out += got
        assert out == rewrite(spec, whole, None, ADDRESSES) + list_offsets_answer(2)
        assert not play.broker.paused

    @pytest.mark.parametrize("step", [1000, SLICE_BYTES + 1, 10**6])
    def test_metadata_of_2000_brokers_is_rewritten_in_any_chunks(self, step: int) -> None:
        play = Play()
        whole = answer(METADATA_V12, metadata(topics=50, brokers=2000))
        play.from_client(ask(METADATA_V12))
        out = b""
        for at in range(0, len(whole), step):
            out += play.from_broker(whole[at : at + step])
            while play.broker.paused:
                play.loop.turn()
            out += play.client.take()
        assert out == rewrite(METADATA_V12, whole, None, ADDRESSES)

    def test_metadata_with_brokers_beyond_gathered_limit_closes_the_session(self) -> None:
        play = Play()
        play.worker.gathered_limit = 100_000
        whole = answer(METADATA_V12, metadata(topics=50, brokers=10_000))
        play.from_client(ask(METADATA_V12))
        for at in range(0, len(whole), 50_000):
            play.from_broker(whole[at : at + 50_000])
            play.loop.advance(0)
            if play.rejected:
                break
        ((_, error),) = play.rejected
        assert error.cause == Cause.FRAME_TOO_LARGE
        assert "limits.gathered" in str(error)


class TestLimits:
    def test_an_answer_too_long_to_be_gathered_closes_before_anything_is_held(self) -> None:
        play = Play()
        play.from_client(ask(FIND_COORDINATOR_V4))
        play.from_broker(pack(">ii", play.worker.gathered_limit + 1, 1) + bytes(100))
        ((side, error),) = play.rejected
        assert (side, error.cause) == ("broker", Cause.FRAME_TOO_LARGE)
        assert "limits.gathered" in str(error)

    def test_oversized_api_versions_answer_closes_as_frame_too_large(self) -> None:
        play = Play()
        play.from_client(request(18, 2, 1))
        play.from_broker(pack(">ii", SLICE_BYTES + 1, 1) + bytes(100))
        assert play.rejected[0][1].cause == Cause.FRAME_TOO_LARGE

    def test_produce_answer_beyond_gathered_limit_passes_without_throttle_time(self) -> None:
        play = Play({PRODUCER: KIB})
        play.worker.gathered_limit = SLICE_BYTES
        partitions = [{"index": number} for number in range(1000)]
        whole = answer(PRODUCE_V7, {"responses": [{"name": "t", "partition_responses": partitions}]})
        play.from_client(request(0, 7, 1, pack(">hhi", -1, 1, 30_000) + bytes(12 * KIB)))
        assert play.client.paused
        assert play.from_broker(whole[:1000]) == whole[:1000]
        assert play.from_broker(whole[1000:]) == whole[1000:]
        assert play.client.paused  # the mute is what enforces it

    def test_produce_answer_within_gathered_limit_gets_throttle_time(self) -> None:
        play = Play({PRODUCER: KIB})
        partitions = [{"index": number} for number in range(2000)]
        values = {"responses": [{"name": "t", "partition_responses": partitions}], "node_endpoints": [broker(2)]}
        play.from_client(request(0, 11, 1, b"\0" + b"\0" + pack(">hi", 1, 30_000) + bytes(12 * KIB)))
        play.from_broker(answer(PRODUCE_V11, values))
        play.loop.advance(0)
        got = play.client.take()
        told_ms = read_throttle(PRODUCE_V11, got)
        assert told_ms == pytest.approx(2000, abs=100)
        expected = answer(PRODUCE_V11, values | {"throttle_time_ms": told_ms})
        assert got == rewrite(PRODUCE_V11, expected, None, ADDRESSES)


WITH_ADDRESSES = [spec for spec in SPECS.values() if spec.endpoints and spec.advertised]
HOSTS = st.text("abc.-", min_size=5, max_size=30).map(lambda text: f"secret{text}.kafka")
ENDPOINTS = st.tuples(st.sampled_from((-(2**31), -1, 0, 1, 2, 3, 77, 2**31 - 1)), HOSTS)


@examples(2)
@given(
    spec=st.sampled_from(WITH_ADDRESSES),
    endpoints=st.lists(ENDPOINTS, min_size=1, max_size=12),
    times=st.sampled_from((1, 1, 1, 200)),
    cuts=st.lists(st.integers(0, 100_000), max_size=4),
)
def test_no_host_of_a_broker_escapes(
    spec: ApiSpec, endpoints: list[tuple[int, str]], times: int, cuts: list[int]
) -> None:
    """Whatever an answer names, known or not, long or short and cut anywhere: nothing of it reaches the client."""
    play = Play()
    named = [broker(node_id, host) for node_id, host in endpoints * times]
    path = spec.endpoint_path or ""
    values = {path.split(" ")[-1]: named} if path else named[0]
    whole = encode_frame(spec, values)
    body = b"\0\0\1" + bytes(40) if spec.request_header_version == 2 else bytes(40)
    play.from_client(request(spec.api_key, spec.api_version, 1, body))
    assert not play.rejected
    out = b""
    edges = [0, *sorted(cut % len(whole) for cut in cuts), len(whole)]
    for start, stop in pairwise(edges):
        out += play.from_broker(whole[start:stop])
        play.loop.advance(0)
        out += play.client.take()
    assert not play.rejected
    assert b"secret" not in out
    assert (len(out) - 4).to_bytes(4, "big") == out[:4]
    assert not play.session.in_flight
