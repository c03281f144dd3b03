"""Playbooks of what comes from the broker: fetch charged, throttles told and held back, addresses rewritten."""

from struct import pack, unpack_from

import pytest

from protocol.fetch import NO_SESSION, empty_answer
from protocol.overlay import DESCRIBE_QUORUM
from protocol.table import SPECS, key_version
from proxy.session.serving import serve
from tests.protocol.encode import encode_frame, encode_request
from tests.proxy.playbook import (
    KIB,
    Play,
    fetch,
    fetch_answer,
    fetch_quota,
    frame,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    produce_quota,
    request,
    throttle_of,
)


class TestFetchThrottle:
    def test_max_bytes_is_lowered_to_what_the_quota_allows_at_once(self) -> None:
        play = fetch_quota()
        assert play.from_client(fetch(1, max_bytes=10**6, min_bytes=20_000)) == fetch(
            1, max_bytes=10 * KIB, min_bytes=10 * KIB
        )
        play.from_broker(fetch_answer(1, 0))
        assert play.from_client(fetch(2, max_bytes=100)) == fetch(2, max_bytes=100)
        play.from_broker(fetch_answer(2, 0))
        assert play.from_client(fetch(3, max_bytes=100, min_bytes=10**6)) == fetch(3, max_bytes=100, min_bytes=100)

    def test_several_fetches_of_one_chunk_go_one_after_the_other_each_lowered_to_what_is_left(self) -> None:
        play = fetch_quota()
        asked = fetch(1) + list_offsets(2) + fetch(3)
        assert play.from_client(asked) == fetch(1, max_bytes=10 * KIB) + list_offsets(2)
        assert play.client.paused
        play.from_broker(fetch_answer(1, 4 * KIB - 14))
        assert play.broker.take() == b""
        play.from_broker(list_offsets_answer(2))
        assert play.broker.take() == fetch(3, max_bytes=7 * KIB)

    def test_fetch_max_bytes_without_quota_is_unchanged(self) -> None:
        assert Play().from_client(fetch(1)) == fetch(1)

    def test_over_the_quota_the_data_is_forwarded_the_throttle_told_and_the_client_muted(self) -> None:
        play = fetch_quota()
        play.from_client(fetch(1))
        answer = play.from_broker(fetch_answer(1, 12 * KIB))
        told = unpack_from(">i", answer, 8)[0]
        assert told == pytest.approx(2000, abs=100)
        assert answer == fetch_answer(1, 12 * KIB, told)
        assert play.client.paused
        play.loop.advance(told)
        assert not play.client.paused

    @pytest.mark.parametrize("cut", [1, 4, 8, 11, 12, 20, 63, 64, 5000])
    def test_an_answer_is_charged_once_wherever_it_is_cut(self, cut: int) -> None:
        play = fetch_quota()
        play.from_client(fetch(1))
        whole = fetch_answer(1, 12 * KIB)
        out = play.from_broker(whole[:cut]) + play.from_broker(whole[cut:])
        assert len(out) == len(whole)
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert usage.charged_total == len(whole) - 4

    def test_the_records_of_a_throttled_answer_stream_on(self) -> None:
        play = fetch_quota()
        play.from_client(fetch(1))
        whole = fetch_answer(1, 12 * KIB)
        assert len(play.from_broker(whole[:100])) == 100
        assert play.from_broker(whole[100:]) == whole[100:]


class TestDelay:
    def test_the_answer_is_held_back_for_the_throttle_time_and_the_broker_is_not_read(self) -> None:
        play = produce_quota(response="delay")
        play.from_client(produce(1, 12 * KIB))
        assert play.from_broker(produce_answer(1)) == b""
        assert play.broker.paused
        play.loop.advance(1900)
        assert play.client.take() == b""
        play.loop.advance(200)
        assert throttle_of(play.client.take()) == pytest.approx(2000, abs=100)
        assert not play.broker.paused
        assert not play.client.paused

    def test_a_fetch_is_held_back_and_charged_once(self) -> None:
        play = fetch_quota(response="delay")
        play.from_client(fetch(1))
        whole = fetch_answer(1, 12 * KIB)
        assert play.from_broker(whole[:500]) == b""
        assert play.from_broker(whole[500:]) == b""  # read before the pause took hold
        play.loop.advance(3000)
        assert len(play.client.take()) == len(whole)
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert usage.throttled_total == 1

    def test_answer_before_delayed_answer_leaves_at_once(self) -> None:
        play = produce_quota(response="delay")
        play.from_client(list_offsets(1) + produce(2, 12 * KIB))
        assert play.from_broker(list_offsets_answer(1) + produce_answer(2)) == list_offsets_answer(1)
        play.loop.advance(3000)
        assert throttle_of(play.client.take()) > 0

    @pytest.mark.parametrize(("version", "held"), [(5, True), (6, False)])
    def test_auto_delays_for_versions_from_before_kip_219(self, version: int, held: bool) -> None:
        play = produce_quota(response="auto")
        play.from_client(produce(1, 12 * KIB, version=version))
        assert (play.from_broker(produce_answer(1)) == b"") is held


class TestAddresses:
    def answer(self, correlation_id: int, host: bytes, port: int) -> bytes:
        """Return Metadata v1 of one broker and no topic."""
        return frame(pack(">iiih", correlation_id, 1, 1, len(host)) + host + pack(">ihi", port, -1, 1) + pack(">i", 0))

    def test_brokers_are_learned_and_replaced(self) -> None:
        play = Play()
        play.from_client(request(3, 1, 9, pack(">i", 0)))
        assert play.from_broker(self.answer(9, b"kafka-1", 9092)) == self.answer(9, b"proxy.example", 9101)
        assert play.told == [1]

    @pytest.mark.parametrize("step", [1, 7, 30])
    def test_an_answer_in_pieces_is_gathered_first(self, step: int) -> None:
        play = Play()
        play.from_client(list_offsets(8) + request(3, 1, 9, pack(">i", 0)) + list_offsets(10))
        answers = list_offsets_answer(8) + self.answer(9, b"kafka-1", 9092) + list_offsets_answer(10)
        out = b"".join(play.from_broker(answers[at : at + step]) for at in range(0, len(answers), step))
        assert out == list_offsets_answer(8) + self.answer(9, b"proxy.example", 9101) + list_offsets_answer(10)


class TestShareFetch:
    """KIP-932, charged to the fetch quota as in Kafka."""

    @staticmethod
    def share_fetch(correlation_id: int, max_bytes: int) -> bytes:
        head = pack(">hhih", 78, 1, correlation_id, 3) + b"app" + b"\0"
        return frame(head + b"\2g\2m" + pack(">iiiiii", 0, 500, 1, max_bytes, 100, 100) + b"\1\1\0")

    @staticmethod
    def answer(correlation_id: int, records: int) -> bytes:
        """No error, one topic of one partition with records, and no addresses."""
        size = bytes([(records + 1) & 0x7F | 0x80, (records + 1) >> 7 & 0x7F | 0x80, (records + 1) >> 14])
        partition = pack(">ih", 0, 0) + b"\0" + pack(">h", 0) + b"\0" + pack(">ii", -1, -1) + b"\0" + size
        body = pack(">ih", 0, 0) + b"\0" + pack(">i", 0) + b"\2" + bytes(16) + b"\2" + partition + bytes(records)
        return frame(pack(">i", correlation_id) + b"\0" + body + b"\1\0\0" + b"\1\0")

    def test_share_fetch_is_lowered_charged_and_throttled(self) -> None:
        play = fetch_quota()
        assert play.from_client(self.share_fetch(1, 10**6)) == self.share_fetch(1, 10 * KIB)
        told = play.from_broker(self.answer(1, 20 * KIB))
        assert unpack_from(">i", told, 9)[0] > 9000
        assert play.client.paused
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert usage.charged_total == len(told) - 5

    def test_share_fetch_over_quota_waits_and_gets_no_empty_answer(self) -> None:
        """It may acknowledge what was delivered, and only the broker can take that."""
        play = fetch_quota()
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(self.share_fetch(2, 10**6))
        play.from_broker(self.answer(2, 30 * KIB))
        assert play.from_client(self.share_fetch(3, 10**6)) == b""
        play.loop.advance(15_000)
        assert play.client.take() == play.broker.take() == b""
        play.loop.advance(10_000)
        assert play.broker.take() != b""


class TestEmptyFetchAnswer:
    """A Fetch that has waited as long as clients wait."""

    @pytest.mark.parametrize("version", [0, 1, 3, 4, 7, 11])
    def test_waiting_fetch_gets_empty_answer_with_throttle_time(self, version: int) -> None:
        play = fetch_quota()
        play.worker.served = play.session.policies.served = serve({1: (0, 17), 12: (0, 4)}, "mute")
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(fetch(2))
        play.from_broker(fetch_answer(2, 50 * KIB))
        assert play.from_client(fetch(3, version=version) + heartbeat(4)) == b""
        play.loop.advance(7_900)
        assert play.client.take() == b""
        play.loop.advance(200)
        answer = play.client.take()
        told_ms = unpack_from(">i", answer, 8)[0] if version else 0
        assert answer == empty_answer(SPECS[key_version(1, version)], 3, told_ms, NO_SESSION)
        assert told_ms == (1000 if version else 0)
        assert play.broker.take() == heartbeat(4)

    def test_within_a_session_the_client_is_told_to_begin_another(self) -> None:
        play = fetch_quota()
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(fetch(2))
        play.from_broker(fetch_answer(2, 50 * KIB))
        incremental = request(1, 11, 3, pack(">iiiibiiiih", -1, 500, 1, 1000, 0, 77, 5, 0, 0, 0))
        play.from_client(incremental)
        play.loop.advance(8_100)
        answer = play.client.take()
        assert unpack_from(">hi", answer, 12) == (71, 0)
        assert play.broker.take() == b""

    def test_a_client_that_has_closed_its_half_is_not_waited_for(self) -> None:
        play = fetch_quota()
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(fetch(2))
        play.from_broker(fetch_answer(2, 50 * KIB))
        play.from_client(fetch(3))
        play.client.take()
        play.session.client_finished()
        assert play.client.take() == b""
        assert play.client.closed
        assert play.broker.take() == b""


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_controllers_keep_their_ids_and_show_no_address(step: int) -> None:
    spec = SPECS[key_version(DESCRIBE_QUORUM, 2)]
    play = Play()
    sent = encode_request(spec, {"topics": []}, 1)
    assert play.from_client(sent) == sent
    listener = {"name": "CONTROLLER", "host": "kraft", "port": 9093}
    back = encode_frame(spec, {"nodes": [{"node_id": 3000, "listeners": [listener]}]}, 1)
    got = b"".join(play.from_broker(back[at : at + step]) for at in range(0, len(back), step))
    assert got == encode_frame(spec, {"nodes": [{"node_id": 3000, "listeners": []}]}, 1)
