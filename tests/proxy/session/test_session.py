"""Playbooks of a whole session: what crosses it, what it refuses, how it ends."""

from itertools import pairwise
from struct import pack

import pytest

from protocol.errors import Cause
from proxy.session.exchange import MAX_IN_FLIGHT
from tests.proxy.playbook import (
    KIB,
    PRODUCER,
    QUESTION,
    Play,
    fetch,
    fetch_answer,
    frame,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    produce_quota,
    request,
    serves,
)


class TestForwarding:
    def test_a_chunk_of_frames_that_need_nothing_goes_out_as_it_came_in_one_write(self) -> None:
        play = Play()
        chunk = list_offsets(1) + list_offsets(2) + heartbeat(3)
        play.session.requests.feed(chunk, 0)
        assert play.broker.sent == [chunk]
        answers = list_offsets_answer(1) + list_offsets_answer(2) + heartbeat_answer(3)
        play.session.answers.feed(answers, 0)
        assert play.client.sent == [answers]

    @pytest.mark.parametrize("step", [1, 2, 3, 5, 13, 17, 64])
    def test_any_split_gives_the_same_bytes(self, step: int) -> None:
        play = produce_quota()
        asked = list_offsets(1, 40) + produce(2, 300) + fetch(3, max_bytes=100) + heartbeat(4) + produce(5, 10, acks=0)
        answers = list_offsets_answer(1, 90) + produce_answer(2) + fetch_answer(3, 500) + heartbeat_answer(4)
        out = b"".join(play.from_client(asked[at : at + step]) for at in range(0, len(asked), step))
        assert out == asked
        out = b"".join(play.from_broker(answers[at : at + step]) for at in range(0, len(answers), step))
        assert out == answers
        assert not play.rejected

    def test_a_large_body_streams_through_chunk_by_chunk(self) -> None:
        play = produce_quota()
        whole = produce(1, 9000)
        head, middle, tail = whole[:100], whole[100:8000], whole[8000:]
        assert [play.from_client(part) for part in (head, middle, tail)] == [head, middle, tail]

    def test_request_before_broker_connection_is_kept_and_forwarded(self) -> None:
        play = Play(connected=False)
        assert play.client.paused
        play.client.paused = False  # so does uvloop, where a transport is paused as soon as it is made
        assert play.from_client(list_offsets(1)) == b""
        assert play.client.paused
        play.session.connected(play.broker, 1)
        assert play.broker.take() == list_offsets(1)
        assert not play.client.paused

    def test_too_many_requests_in_flight_stop_the_client_until_half_are_answered(self) -> None:
        play = Play()
        for number in range(MAX_IN_FLIGHT):
            assert not play.client.paused
            play.from_client(list_offsets(number))
        assert play.client.paused
        for number in range(MAX_IN_FLIGHT // 2):
            assert play.client.paused
            play.from_broker(list_offsets_answer(number))
        assert not play.client.paused

    def test_back_pressure_passes_across_in_both_directions(self) -> None:
        play = Play()
        play.session.blocked("broker", True)
        assert play.client.paused
        play.session.blocked("broker", False)
        assert not play.client.paused
        play.session.blocked("client", True)
        assert play.broker.paused
        assert play.client.paused  # nor would a broker read it, before its answers are out
        play.session.blocked("client", False)
        assert not play.broker.paused
        assert not play.client.paused

    def test_a_client_that_takes_no_answers_may_finish_the_request_under_way(self) -> None:
        play = Play()
        whole = list_offsets(1, 500)
        play.from_client(whole[:100])
        play.session.blocked("client", True)
        assert not play.client.paused
        assert play.from_client(whole[100:] + list_offsets(2)) == whole[100:]
        assert play.client.paused
        play.session.blocked("client", False)
        assert play.broker.take() == list_offsets(2)
        assert not play.client.paused


class TestBadInput:
    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            (request(1234, 0, 1), Cause.UNKNOWN_API),
            (request(4, 0, 1), Cause.UNKNOWN_API),  # LeaderAndIsr: inter-broker, never served
            (request(0, 99, 1), Cause.UNSUPPORTED_VERSION),
            (request(1, 19, 1), Cause.UNSUPPORTED_VERSION),
            (b"\x7f\xff\xff\xff", Cause.FRAME_TOO_LARGE),
            (b"\xff\xff\xff\xff", Cause.FRAME_TOO_SHORT),
            (frame(pack(">hhih", 0, 7, 1, 500)), Cause.BAD_HEADER),
        ],
    )
    def test_a_client_that_breaks_the_protocol_is_closed_and_counted(self, data: bytes, cause: Cause) -> None:
        play = Play()
        play.from_client(data)
        ((side, error),) = play.rejected
        assert (side, error.cause) == ("client", cause)
        assert play.client.closed
        assert play.broker.closed
        assert play.closed == 1

    def test_a_version_that_a_setting_withholds_is_named_with_the_setting_and_the_client(self) -> None:
        play = Play(fetch_max_version=15)
        play.from_client(list_offsets(1))
        play.from_broker(list_offsets_answer(1))
        play.from_client(request(1, 17, 2))
        ((side, error),) = play.rejected
        assert (side, error.cause) == ("client", Cause.UNSUPPORTED_VERSION)
        assert str(error) == "Fetch v17 is not offered to clients: versions 0 to 15 are, by kafka.fetch_max_version"
        assert play.rejected_client_id == "app"

    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            (list_offsets_answer(2), Cause.CORRELATION_MISMATCH),
            (list_offsets_answer(1) + list_offsets_answer(1), Cause.UNEXPECTED_RESPONSE),
            (b"\x15\x03\x03\x00\x02\x02", Cause.TLS_ON_PLAINTEXT),  # a TLS alert
        ],
    )
    def test_a_broker_that_breaks_the_protocol_is_closed_and_counted(self, data: bytes, cause: Cause) -> None:
        play = Play()
        play.from_client(list_offsets(1))
        play.from_broker(data)
        ((side, error),) = play.rejected
        assert (side, error.cause) == ("broker", cause)

    def test_proved_client_is_not_asked_for_proof_again(self) -> None:
        play = Play(authenticated=False)
        assert play.from_client(list_offsets(1) + list_offsets(2)) == QUESTION
        assert serves(play) == list_offsets(1) + list_offsets(2)
        assert play.from_client(produce(3, 5000)) == produce(3, 5000)

    def test_large_api_versions_before_authentication_is_refused(self) -> None:
        play = Play(authenticated=False)
        play.from_client(request(18, 0, 1, bytes(5000)))
        assert play.rejected[0][1].cause == Cause.FRAME_TOO_LARGE


class TestEnding:
    def test_a_half_close_still_gets_its_answers(self) -> None:
        play = Play()
        play.from_client(list_offsets(1))
        play.session.client_finished()
        assert not play.client.closed
        assert play.from_broker(list_offsets_answer(1)) == list_offsets_answer(1)
        assert play.client.closed
        assert play.broker.closed

    def test_a_half_close_while_muted_waits_for_what_was_held(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB) + list_offsets(2))
        play.session.client_finished()
        play.from_broker(produce_answer(1))
        play.loop.advance(3000)
        assert play.broker.take() == list_offsets(2)
        assert play.from_broker(list_offsets_answer(2)) == list_offsets_answer(2)
        assert play.client.closed

    def test_a_half_close_within_a_request_closes(self) -> None:
        play = Play()
        play.from_client(produce(1, 500)[:100])
        play.session.client_finished()
        assert play.client.closed

    def test_a_drain_closes_an_idle_pair_at_once_and_a_busy_one_after_its_answer(self) -> None:
        idle, busy = Play(), Play()
        idle.session.drain()
        assert idle.client.closed
        busy.from_client(list_offsets(1))
        busy.session.drain()
        assert busy.client.paused
        assert not busy.client.closed
        assert busy.from_broker(list_offsets_answer(1)) == list_offsets_answer(1)
        assert busy.client.closed

    def test_a_drain_leaves_a_session_alone_that_has_let_go_of_its_parts(self) -> None:
        play = Play()
        play.session.close()
        play.session.end_lost()
        play.session.drain()

    def test_a_drain_lets_the_request_under_way_be_finished(self) -> None:
        play = Play()
        whole = produce(1, 500)
        play.from_client(whole[:100])
        play.session.drain()
        assert play.from_client(whole[100:] + list_offsets(2)) == whole[100:]
        play.from_broker(produce_answer(1))
        assert play.client.closed

    def test_a_muted_session_that_is_closed_leaves_the_delay_queue(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB))
        assert play.throttling.queue_sizes()[PRODUCER] == 1
        play.session.close()
        assert play.throttling.queue_sizes()[PRODUCER] == 0
        play.loop.advance(10_000)
        assert play.closed == 1


def test_the_clock_of_the_playbook_moves_forward() -> None:
    """The fake loop calls in order of time: else the playbooks above would prove nothing."""
    seen: list[int] = []
    loop = Play().loop
    for delay_s in (0.3, 0.1, 0.2):
        loop.call_later(delay_s, lambda: seen.append(loop.now_ms))
    loop.advance(1000)
    assert len(seen) == 3
    assert all(earlier < later for earlier, later in pairwise(seen))
