"""request_percentage: what a request is charged, what it is told, and who waits.

A broker is played that works on one request of a connection at a time, each for so many milliseconds.
"""

import pytest

from quotas.entities import Default, Entity
from quotas.policy import Policy, Terms
from tests.proxy.playbook import (
    CONSUMER,
    KIB,
    PRODUCER,
    Play,
    authenticate,
    fetch,
    fetch_answer,
    frame,
    handshake,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
    throttle_of,
)
from tests.proxy.session.another import Another
from tests.proxy.session.timed_play import (
    LIMIT,
    REQUEST,
    charged,
    no_more_waived,
    recorded_us,
    request_quota,
    take,
    told,
)


class TestWhatIsCharged:
    def test_the_time_at_the_broker_without_the_way_and_the_proxy_s_own(self) -> None:
        play = request_quota()
        play.times.of(1).floor_ns(18, 1_000_000, play.loop.now_ms)
        spent = iter([0, 30_000, 30_000, 50_000])
        play.times.own.every, play.times.own.thread_ns = 1, lambda: next(spent)
        take(play, list_offsets(1), list_offsets_answer(1), 11)
        assert recorded_us(play) == 10_050
        assert charged(play) == pytest.approx(1.005)

    def test_what_seems_dear_now_and_then_is_not_charged(self) -> None:
        play = request_quota(waives=True)
        take(play, list_offsets(1), list_offsets_answer(1), 6)
        assert recorded_us(play) <= 60
        take(play, list_offsets(2), list_offsets_answer(2), 150)
        assert recorded_us(play) >= 149_000

    def test_what_is_usual_where_it_took_no_longer(self) -> None:
        play = request_quota()
        take(play, list_offsets(1), list_offsets_answer(1), 0)
        assert 20 <= recorded_us(play) <= 60

    def test_what_all_requests_take_is_their_work_however_little_it_is(self) -> None:
        """And whatever the limit: one that nobody reaches is there to record what is used."""
        play = request_quota(100_000.0, waives=True)
        play.times.of(1).floor_ns(18, 1, play.loop.now_ms)
        for _ in range(200):
            take(play, list_offsets(1), list_offsets_answer(1), 1)
        assert recorded_us(play) == pytest.approx(168 * 900, rel=0.1)

    def test_pipelined_ones_too(self) -> None:
        play = request_quota(100_000.0, waives=True)
        play.times.of(1).floor_ns(18, 1, play.loop.now_ms)
        for _ in range(10):
            play.from_client(list_offsets(1) * 20)
            for _ in range(20):
                play.loop.advance(1)
                play.from_broker(list_offsets_answer(1))
        assert recorded_us(play) == pytest.approx(168 * 840, rel=0.1)

    def test_what_may_wait_teaches_nothing(self) -> None:
        play = request_quota(100_000.0, waives=True)
        for _ in range(100):
            take(play, produce(1, 100, acks=-1), produce_answer(1), 1)
        assert recorded_us(play) < 100 * 150

    def test_what_the_proxy_did_for_others_meanwhile_is_no_work(self) -> None:
        play = request_quota(100_000.0, waives=True)
        play.times.of(1).floor_ns(18, 1, play.loop.now_ms)
        others = [Another(play) for _ in range(4)]
        for other in others:
            other.send(list_offsets(1))
            other.session.answers.feed(list_offsets_answer(1), play.loop.now_ms)
        for _ in range(200):
            play.times.chunk_took(400_000)
        for _ in range(100):
            play.from_client(list_offsets(1))
            for other in others:
                other.send(list_offsets(1))
            play.loop.advance(1)
            for other in others:
                other.session.answers.feed(list_offsets_answer(1), play.loop.now_ms)
            play.from_broker(list_offsets_answer(1))
            for _ in range(10):
                play.times.chunk_took(400_000)
        assert recorded_us(play) < 5 * 100 * 60

    def test_what_the_proxy_itself_may_have_been_late_is_no_work(self) -> None:
        play = request_quota()
        for _ in range(50):
            play.times.round_took(1_500_000)
        take(play, list_offsets(1), list_offsets_answer(1), 3)
        assert recorded_us(play) <= 60

    def test_nothing_without_such_a_quota_and_no_clock_is_read(self) -> None:
        play = Play({PRODUCER: 10**9, CONSUMER: 10**9})
        play.times.clock_ns = lambda: pytest.fail("the clock is read")
        take(play, list_offsets(1), list_offsets_answer(1), 11)
        take(play, produce(2, 100), produce_answer(2), 11)
        take(play, fetch(3), fetch_answer(3, 100), 11)
        assert recorded_us(play) == 0

    def test_a_request_that_stands_behind_another_begins_when_that_is_answered(self) -> None:
        play = request_quota()
        play.from_client(list_offsets(1) + list_offsets(2))
        play.loop.advance(10)
        play.from_broker(list_offsets_answer(1))
        play.loop.advance(10)
        play.from_broker(list_offsets_answer(2))
        assert recorded_us(play) == pytest.approx(20_000, rel=0.05)

    def test_a_large_produce_begins_when_its_last_byte_has_gone(self) -> None:
        play = request_quota(5.0)
        whole = produce(1, 300 * KIB)
        play.from_client(whole[: 64 * KIB])
        play.loop.advance(500)
        play.from_client(whole[64 * KIB :])
        play.loop.advance(10)
        play.from_broker(produce_answer(1))
        assert recorded_us(play) == pytest.approx(10_000, rel=0.06)

    def test_what_nobody_answers_does_not_shorten_what_came_before_it(self) -> None:
        """The last byte of an acks=0 Produce is no beginning of the request that is in flight."""
        play = request_quota(50.0)
        behind = produce(2, 10 * KIB, acks=0)
        play.from_client(list_offsets(1) + behind[:200])
        play.loop.advance(100)
        play.from_client(behind[200:])
        play.from_broker(list_offsets_answer(1))
        assert recorded_us(play) >= 99_000

    @pytest.mark.parametrize("times", [2, 40])
    def test_the_usual_way_charges_what_the_other_one_does(self, times: int) -> None:
        """One that is new for its client goes by the gates, all others as they come; dear ones, and pipelined."""
        alone, together = request_quota(100.0), request_quota(100.0)
        for number in range(times):
            for each in (produce, list_offsets):
                key = number * 2 + (each is produce)
                answer = produce_answer(key) if each is produce else list_offsets_answer(key)
                asked = each(key, 300)
                alone.session.gates.set_broker(1)  # what is known of the last request is forgotten
                for play in (alone, together):
                    take(play, asked, answer, 7 if number % 5 == 4 else 1)
        assert recorded_us(together) == recorded_us(alone) > 0
        assert charged(together) == pytest.approx(charged(alone))

    def test_a_request_that_is_new_a_dear_one_and_a_debt_in_one_chunk(self) -> None:
        play = request_quota()
        for number in range(1, 4):
            take(play, list_offsets(number), list_offsets_answer(number), 0)
        play.from_client(b"".join(list_offsets(number) for number in range(4, 8)))
        play.loop.advance(300)
        got = play.from_broker(b"".join(list_offsets_answer(number) for number in range(4, 8)))
        assert (told(got), play.client.paused) == (1000, True)
        assert len(got) == 4 * len(list_offsets_answer(4))
        assert recorded_us(play) >= 299_000

    def test_no_wait_by_design(self) -> None:
        """For replicas, for data, for the other members: what is charged does not depend on how long that was."""
        for waiting, answer in (
            (produce(1, 100, acks=-1), produce_answer(1)),
            (fetch(1), fetch_answer(1, 0)),
            (request(11, 5, 1, b""), frame(b"\0\0\0\1" + bytes(30))),
        ):
            play = request_quota()
            take(play, waiting, answer, 5_000)
            assert 0 < recorded_us(play) < 300

    def test_a_fetch_that_could_not_have_waited_is_charged_what_it_took(self) -> None:
        play = request_quota()
        take(play, fetch(1, min_bytes=0), fetch_answer(1, 100), 50)
        assert recorded_us(play) == pytest.approx(49_500, rel=0.02)

    def test_what_nobody_answers_is_taken_in_place_as_by_the_gates(self) -> None:
        figures = []
        for at_once in (True, False):
            play = Play(policy=Policy({Entity(client_id="app"): {REQUEST: 1000.0, PRODUCER: 1e6}}))
            take(play, produce(1, 10), produce_answer(1), 0)
            stream = b"".join(produce(number, 100 * number, acks=number % 3 - 1) for number in range(20))
            size = len(stream) if at_once else 7  # in pieces that are held, and so go by the gates
            sent = b"".join(play.from_client(stream[at : at + size]) for at in range(0, len(stream), size))
            assert sent == stream
            (produced,) = [each for each in play.engine.usage(play.loop.now_ms) if each.kind is PRODUCER]
            (meter,) = [play.meters[key] for key in play.meters]
            counted = (meter.produce_requests, meter.produce_bytes, play.times.exempt_us, len(play.session._in_flight))
            figures.append((produced.charged_total, *counted))
        assert figures[0] == figures[1]
        assert figures[0][-1] == 13

    @pytest.mark.uncompiled("counts calls inside")
    def test_of_what_nobody_answers_one_in_so_many_has_its_records_looked_at_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[int] = []

        def look(*_: object) -> float:
            looked.append(1)
            return 0.0

        monkeypatch.setattr("proxy.session.gates.produce.records_per_byte", look)
        play = request_quota()
        for number in range(610):
            play.from_client(produce(number, 100, acks=0))
        assert 10 <= len(looked) <= 12

    def test_what_nobody_answers_is_exempt_and_logins_are_nobody_s(self) -> None:
        play = request_quota()
        play.from_client(produce(1, 100, acks=0))
        assert (recorded_us(play), play.times.exempt_us > 0) == (0, True)
        exempt_us = play.times.exempt_us
        play = request_quota(authenticated=False)
        play.from_client(handshake(1, "PLAIN"))
        play.loop.advance(500)
        play.from_broker(frame(b"\0\0\0\1\0\0\0\0\0\1\0\5PLAIN"))
        play.from_client(authenticate(2, b"\0alice\0secret"))
        play.loop.advance(500)
        assert (recorded_us(play), charged(play)) == (0, 0.0)
        assert exempt_us < 500

    def test_what_was_reserved_is_put_right_under_other_quotas_too(self) -> None:
        play = request_quota(50.0)
        play.from_client(list_offsets(1))
        assert charged(play) > 0
        play.engine.apply(Policy({Entity(client_id="app"): {REQUEST: 50.0}}), play.loop.now_ms)
        play.loop.advance(10)
        play.from_broker(list_offsets_answer(1))
        assert charged(play) == pytest.approx(recorded_us(play) * 1e-4)

    def test_answers_that_come_while_the_broker_is_not_read_are_taken_for_usual(self) -> None:
        play = request_quota(50.0)
        play.from_client(list_offsets(1))
        play.session.client_blocked(True)
        play.loop.advance(60_000)
        play.session.client_blocked(False)
        play.from_broker(list_offsets_answer(1))
        assert recorded_us(play) < 300


class TestTheThrottle:
    def in_debt(self, percent: float = LIMIT) -> Play:
        play = request_quota(percent)
        take(play, list_offsets(1), list_offsets_answer(1), 300)
        return play

    def test_it_is_told_and_no_longer_than_a_window(self) -> None:
        play = request_quota()
        assert told(take(play, list_offsets(1), list_offsets_answer(1), 300)) == 1000
        assert play.client.paused
        play.loop.advance(1000)
        assert not play.client.paused

    def test_it_is_told_by_api_versions_too(self) -> None:
        play = request_quota()
        play.times.of(1).floor_ns(18, 1, play.loop.now_ms)
        answer = frame(b"\0\0\0\1\0\0" + b"\0\0\0\1\0\3\0\0\0\7" + bytes(4))
        got = take(play, request(18, 1, 1), answer, 300)
        assert int.from_bytes(got[-4:], "big") == 1000

    def test_a_pause_of_the_broker_is_forgotten_after_two_windows(self) -> None:
        """All that is under way takes as long as the pause: nobody can say who worked, and nobody is banned for it."""
        play = request_quota()
        others = [Another(play) for _ in range(2)]
        for other in others:
            assert other.send(list_offsets(1))
        play.loop.advance(60_000)
        for other in others:
            other.session.answers.feed(list_offsets_answer(1), play.loop.now_ms)
        play.loop.advance(25_000)
        assert others[0].send(list_offsets(2)) == list_offsets(2)

    def test_what_an_older_client_understands(self) -> None:
        play = request_quota(response="delay")
        assert take(play, list_offsets(1), list_offsets_answer(1), 300) == b""
        play.loop.advance(1000)
        assert told(play.client.take()) == 1000

    def test_another_connection_waits_for_the_counter(self) -> None:
        play = self.in_debt()
        other = Another(play)
        assert other.send(list_offsets(1)) == b""
        play.loop.advance(999)
        assert not other.broker.sent
        play.loop.advance(12_000)
        assert other.broker.take() == list_offsets(1)

    def test_the_longer_throttle_is_told_and_of_equal_ones_that_of_the_request(self) -> None:
        for size, kind in ((13 * KIB, CONSUMER), (11 * KIB - 12, REQUEST), (10 * KIB + 20, REQUEST)):
            policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT, CONSUMER: KIB}})
            play = Play(policy=policy)
            no_more_waived(play)
            play.from_client(fetch(1, min_bytes=0))
            play.loop.advance(300)
            got = play.from_broker(fetch_answer(1, size))
            throttles = {usage.kind: usage.throttle_ms_total for usage in play.engine.usage(play.loop.now_ms)}
            assert throttles[kind] == told(got) >= 1000
            assert sum(throttles.values()) == told(got)
            assert play.throttling.queue_sizes()[kind] == 1

    def test_a_produce_tells_the_longer_one(self) -> None:
        policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT, PRODUCER: KIB}})
        play = Play(policy=policy)
        assert throttle_of(take(play, produce(1, 15 * KIB), produce_answer(1), 300)) > 4000
        assert play.throttling.queue_sizes()[PRODUCER] == 1
        play = Play(policy=policy)
        assert throttle_of(take(play, produce(1, 10 * KIB), produce_answer(1), 300)) == 1000
        assert play.throttling.queue_sizes()[REQUEST] == 1

    def test_a_produce_waits_in_the_counter_that_is_in_debt_and_asks_the_next(self) -> None:
        policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT, PRODUCER: KIB}})
        play = Play(policy=policy)
        take(play, produce(1, 30 * KIB), produce_answer(1), 300)
        other = Another(play)
        assert other.send(produce(1, 10)) == b""
        assert play.throttling.queue_sizes()[REQUEST] == 1
        play.loop.advance(15_000)
        assert not other.broker.sent
        assert (play.throttling.queue_sizes()[REQUEST], play.throttling.queue_sizes()[PRODUCER]) == (0, 2)
        play.loop.advance(10_000)
        assert other.broker.take() == produce(1, 10)

    def test_a_fetch_is_answered_with_nothing_in_the_end(self) -> None:
        play = self.in_debt(percent=0.5)
        other = Another(play)
        assert other.send(fetch(1)) == b""
        play.loop.advance(8_000)
        assert (play.throttling.answered_empty, told(other.client.take())) == (1, 1000)

    def test_shadow_counts_and_holds_nothing(self) -> None:
        play = request_quota(mode="shadow")
        got = take(play, list_offsets(1), list_offsets_answer(1), 300)
        assert (told(got), play.client.paused) == (0, False)
        assert Another(play).send(list_offsets(1)) == list_offsets(1)
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert (usage.throttled_total, usage.throttle_ms_total) == (1, 1000)
        assert usage.charged_total == pytest.approx(29.95, abs=0.1)

    def test_a_rule_in_shadow_and_a_proposal_count_and_hold_nothing(self) -> None:
        whose = Entity(user=Default.DEFAULT)
        for limit, terms in ((LIMIT, Terms(shadow=True)), (100 * LIMIT, Terms(proposed={REQUEST: LIMIT}))):
            play = Play(policy=Policy({whose: {REQUEST: limit}}, {whose: terms}))
            for number in range(1, 5):
                got = take(play, list_offsets(number), list_offsets_answer(number), 300)
                assert (told(got), play.client.paused) == (0, False)
            (usage,) = play.engine.usage(play.loop.now_ms)
            assert usage.throttled_total == 0
            assert usage.shadow_throttled_total > 0
