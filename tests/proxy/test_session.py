"""Playbooks: what is fed to a session, what comes out at the other end, and who is read from meanwhile."""

from itertools import pairwise
from struct import pack, unpack_from

import pytest

from protocol.errors import Cause
from proxy.request_side import MAX_IN_FLIGHT
from quotas.kinds import QuotaKind
from tests.proxy.playbook import (
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
    request,
)

PRODUCER, CONSUMER = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
KIB = 1024


def produce_quota(**options: object) -> Play:
    """1 KiB/s: ten KiB pass at once (N - 1 windows of one second), what follows is throttled."""
    return Play({PRODUCER: KIB}, **options)  # type: ignore[arg-type]


def fetch_quota(**options: object) -> Play:
    return Play({CONSUMER: KIB}, **options)  # type: ignore[arg-type]


def throttle_of(answer: bytes) -> int:
    """Return the throttle time of a Produce answer, its last field."""
    return int(unpack_from(">i", answer, len(answer) - 4)[0])


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

    def test_what_comes_before_the_broker_connection_stands_is_kept(self) -> None:
        play = Play(connected=False)
        assert play.client.paused
        assert play.from_client(list_offsets(1)) == b""
        play.session.connected(play.broker, 1)
        assert play.broker.take() == list_offsets(1)
        assert not play.client.paused

    def test_too_many_requests_in_flight_stop_the_client_until_half_are_answered(self) -> None:
        play = Play()
        for number in range(MAX_IN_FLIGHT + 1):
            play.from_client(list_offsets(number))
        assert play.client.paused
        for number in range(MAX_IN_FLIGHT // 2 + 1):
            assert play.client.paused
            play.from_broker(list_offsets_answer(number))
        assert not play.client.paused

    def test_back_pressure_passes_across_in_both_directions(self) -> None:
        play = Play()
        play.session.broker_blocked(True)
        assert play.client.paused
        play.session.broker_blocked(False)
        assert not play.client.paused
        play.session.client_blocked(True)
        assert play.broker.paused
        play.session.client_blocked(False)
        assert not play.broker.paused


class TestProduceThrottle:
    def test_over_the_quota_the_answer_tells_it_and_the_client_is_not_read_for_that_long(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB))
        assert play.client.paused
        told = throttle_of(play.from_broker(produce_answer(1)))
        assert told == pytest.approx(2000, abs=100)  # 12 KiB in a 10 s window of 1 KiB/s: 2 s too many
        play.loop.advance(told - 1)
        assert play.client.paused
        play.loop.advance(1)
        assert not play.client.paused

    def test_the_mute_outlasts_the_throttle_time_until_the_answer_is_out(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB))
        play.loop.advance(60_000)
        assert play.client.paused
        play.from_broker(produce_answer(1))
        assert not play.client.paused

    def test_what_stands_behind_a_throttled_produce_waits(self) -> None:
        play = produce_quota()
        assert play.from_client(produce(1, 12 * KIB) + list_offsets(2)) == produce(1, 12 * KIB)
        play.from_broker(produce_answer(1))
        assert play.from_client(list_offsets(3)) == b""  # read before the pause took hold
        play.loop.advance(3000)
        assert play.broker.take() == list_offsets(2) + list_offsets(3)
        assert not play.client.paused

    def test_the_mute_takes_hold_after_its_own_frame(self) -> None:
        play = produce_quota()
        whole = produce(1, 12 * KIB)
        assert play.from_client(whole[:50]) == whole[:50]
        assert not play.client.paused
        assert play.from_client(whole[50:] + list_offsets(2)) == whole[50:]
        assert play.client.paused

    def test_the_mute_takes_hold_after_its_own_frame_also_for_a_client_that_is_known(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 100))
        whole = produce(2, 12 * KIB)
        assert play.from_client(whole[:50]) == whole[:50]
        assert not play.client.paused
        assert play.from_client(whole[50:] + list_offsets(3)) == whole[50:]
        assert play.client.paused

    def test_back_pressure_within_a_throttled_frame_does_not_keep_its_end_away(self) -> None:
        play = produce_quota()
        whole = produce(1, 12 * KIB)
        play.from_client(whole[:50])
        play.session.broker_blocked(True)
        assert play.client.paused
        play.session.broker_blocked(False)
        assert not play.client.paused
        play.from_client(whole[50:])
        assert play.client.paused
        play.from_broker(produce_answer(1))
        play.loop.advance(3000)
        assert not play.client.paused

    def test_a_throttle_that_ends_within_its_frame_needs_no_mute_but_the_answer(self) -> None:
        play = produce_quota()
        whole = produce(1, 12 * KIB)
        play.from_client(whole[:50])
        play.loop.advance(5000)
        assert play.from_client(whole[50:] + list_offsets(2)) == whole[50:]
        play.from_broker(produce_answer(1))
        assert play.broker.take() == list_offsets(2)
        assert not play.client.paused

    def test_acks_0_gets_no_answer_and_is_muted_all_the_same(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB, acks=0))
        assert play.client.paused
        play.loop.advance(3000)
        assert not play.client.paused
        play.from_client(list_offsets(2))
        assert play.from_broker(list_offsets_answer(2)) == list_offsets_answer(2)

    def test_never_less_than_what_the_broker_said(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB))
        assert throttle_of(play.from_broker(produce_answer(1, throttle_ms=70_000))) == 70_000

    def test_another_client_id_on_the_same_connection_has_its_own_counter(self) -> None:
        play = produce_quota()
        assert play.from_client(produce(1, 12 * KIB, client_id=b"other")) != b""
        assert not play.client.paused
        play.from_client(produce(2, 12 * KIB, client_id=b"app"))
        assert play.client.paused

    def test_shadow_counts_and_touches_nothing(self) -> None:
        play = produce_quota(mode="shadow")
        play.from_client(produce(1, 12 * KIB))
        assert not play.client.paused
        assert play.from_broker(produce_answer(1, throttle_ms=7)) == produce_answer(1, throttle_ms=7)
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert (usage.throttled_total, usage.charged_total) == (1, len(produce(1, 12 * KIB)) - 4)

    def test_a_ceiling_holds_for_any_one_delay(self) -> None:
        play = produce_quota(max_delay_ms=500)
        play.from_client(produce(1, 40 * KIB))
        assert throttle_of(play.from_broker(produce_answer(1))) == 500

    def test_group_traffic_is_never_held_longer_than_one_window(self) -> None:
        play = produce_quota()
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(produce(2, 40 * KIB))
        assert throttle_of(play.from_broker(produce_answer(2))) == 1000

    def test_a_changed_quota_holds_for_the_next_request_of_an_open_connection(self) -> None:
        play = Play()
        play.from_client(produce(1, 100 * KIB))
        assert not play.client.paused
        play.engine.apply(produce_quota().engine._policy, play.loop.now_ms)
        play.from_client(produce(2, 12 * KIB))
        assert play.client.paused


class TestFetchThrottle:
    def test_max_bytes_is_lowered_to_what_the_quota_allows_at_once(self) -> None:
        play = fetch_quota()
        assert play.from_client(fetch(1, max_bytes=10**6, min_bytes=20_000)) == fetch(
            1, max_bytes=10 * KIB, min_bytes=10 * KIB
        )
        assert play.from_client(fetch(2, max_bytes=100)) == fetch(2, max_bytes=100)
        assert play.from_client(fetch(3, max_bytes=100, min_bytes=10**6)) == fetch(3, max_bytes=100, min_bytes=100)

    def test_several_fetches_of_one_chunk_are_lowered_each(self) -> None:
        play = fetch_quota()
        asked = fetch(1) + list_offsets(2) + fetch(3)
        assert play.from_client(asked) == fetch(1, max_bytes=10 * KIB) + list_offsets(2) + fetch(3, max_bytes=10 * KIB)

    def test_without_a_quota_it_stays(self) -> None:
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

    def test_answers_before_it_leave_and_answers_behind_it_wait(self) -> None:
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


class TestApiVersions:
    NEWER = 99
    REFUSED = pack(">ih", 1, 35)

    def test_a_newer_version_is_answered_with_error_35_in_v0_layout(self) -> None:
        play = Play()
        assert play.from_client(request(18, self.NEWER, 7, b"whatever")) == b""
        answer = play.client.take()
        assert unpack_from(">ihihhh", answer, 4)[:4] == (7, 35, 1, 18)

    def test_the_answer_waits_for_what_is_in_flight(self) -> None:
        play = Play()
        assert play.from_client(list_offsets(1) + request(18, self.NEWER, 2) + list_offsets(3)) == list_offsets(1)
        assert play.client.take() == b""
        out = play.from_broker(list_offsets_answer(1))
        assert out.startswith(list_offsets_answer(1))
        assert unpack_from(">ih", out, len(list_offsets_answer(1)) + 4) == (2, 35)
        assert play.broker.take() == list_offsets(3)

    def test_the_answer_waits_for_the_last_byte_of_the_one_before_it(self) -> None:
        play = Play()
        play.from_client(list_offsets(1))
        whole = list_offsets_answer(1, 5000)
        assert play.from_broker(whole[:100]) == whole[:100]
        play.from_client(request(18, self.NEWER, 2))
        out = play.from_broker(whole[100:])
        assert out.startswith(whole[100:])
        assert unpack_from(">ih", out, len(whole) - 100 + 4) == (2, 35)

    def test_a_negative_version_closes(self) -> None:
        play = Play()
        play.from_client(request(18, -1, 7))
        assert play.rejected[0][1].cause == Cause.UNSUPPORTED_VERSION
        assert play.client.closed


class TestBadInput:
    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            (request(1234, 0, 1), Cause.UNKNOWN_API),
            (request(4, 0, 1), Cause.UNKNOWN_API),  # LeaderAndIsr: inter-broker, never served
            (request(0, 99, 1), Cause.UNSUPPORTED_VERSION),
            (request(1, 16, 1), Cause.UNSUPPORTED_VERSION),  # above the cap
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

    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            (list_offsets_answer(2), Cause.CORRELATION_MISMATCH),
            (list_offsets_answer(1) + list_offsets_answer(1), Cause.UNEXPECTED_RESPONSE),
            (b"\x15\x03\x03\x00\x02\x02", Cause.FRAME_TOO_LARGE),  # a TLS alert
        ],
    )
    def test_a_broker_that_breaks_the_protocol_is_closed_and_counted(self, data: bytes, cause: Cause) -> None:
        play = Play()
        play.from_client(list_offsets(1))
        play.from_broker(data)
        ((side, error),) = play.rejected
        assert (side, error.cause) == ("broker", cause)

    def test_requests_are_small_until_the_broker_has_answered_an_ordinary_one(self) -> None:
        play = Play(authenticated=False)
        play.from_client(request(17, 1, 1, b"\0\5PLAIN"))
        play.from_broker(frame(pack(">ihi", 1, 0, 0)))
        assert play.session.requests.splitter.limit == 1000
        play.from_client(list_offsets(2))
        play.from_broker(list_offsets_answer(2))
        assert play.from_client(produce(3, 5000)) == produce(3, 5000)

    def test_once_that_is_proved_no_answer_proves_it_again(self) -> None:
        play = Play(authenticated=False)
        for number in range(3):
            play.from_client(produce(number, 100))
            assert (
                play.session._in_flight[0][2]
                is (play.rules.served if number else play.rules.served_before_authentication)[7]
            )
            assert play.from_broker(produce_answer(number)) == produce_answer(number)

    def test_a_large_request_before_that_is_refused(self) -> None:
        play = Play(authenticated=False)
        play.from_client(produce(3, 5000))
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
