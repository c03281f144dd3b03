"""Playbooks of what comes from the client: produce charged and muted, requests from the future answered."""

from struct import pack, unpack_from

import pytest

from protocol.errors import Cause
from quotas.entities import Entity
from quotas.policy import Policy
from tests.proxy.playbook import (
    KIB,
    PRODUCER,
    Play,
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

    def test_requests_behind_throttled_produce_wait_for_the_mute(self) -> None:
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
        play.session.blocked("broker", True)
        assert play.client.paused
        play.session.blocked("broker", False)
        assert not play.client.paused
        play.from_client(whole[50:])
        assert play.client.paused
        play.from_broker(produce_answer(1))
        play.loop.advance(3000)
        assert not play.client.paused

    def test_a_request_of_more_than_is_left_is_charged_as_it_comes_and_throttled_at_its_end(self) -> None:
        play = produce_quota()
        whole = produce(1, 12 * KIB)
        play.from_client(whole[:50])
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert usage.charged_total == 46
        play.loop.advance(5000)
        assert play.from_client(whole[50:] + list_offsets(2)) == whole[50:]
        assert 2000 < throttle_of(play.from_broker(produce_answer(1))) < 2100
        assert play.broker.take() == b""
        play.loop.advance(2100)
        assert play.broker.take() == list_offsets(2)
        assert not play.client.paused

    def test_produce_answered_before_its_end_is_throttled(self) -> None:
        """No broker of Kafka does that; one that does harms nobody."""
        play = produce_quota()
        whole = produce(1, 12 * KIB)
        play.from_client(whole[:50])
        assert play.from_broker(produce_answer(1)) == produce_answer(1)
        assert play.from_client(whole[50:] + list_offsets(2)) == whole[50:]
        assert play.client.paused
        play.loop.advance(3000)
        assert play.broker.take() == list_offsets(2)
        assert not play.rejected

    def test_acks_0_gets_no_answer_and_is_muted_all_the_same(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12 * KIB, acks=0))
        assert play.client.paused
        play.loop.advance(3000)
        assert not play.client.paused
        play.from_client(list_offsets(2))
        assert play.from_broker(list_offsets_answer(2)) == list_offsets_answer(2)

    def test_longer_throttle_time_of_broker_is_kept_in_produce(self) -> None:
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

    def test_group_traffic_passes_a_connection_in_debt(self) -> None:
        play = produce_quota()
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(produce(2, 40 * KIB))
        assert throttle_of(play.from_broker(produce_answer(2))) > 29_000
        assert play.from_client(heartbeat(3)) == heartbeat(3)
        assert play.from_broker(heartbeat_answer(3)) == heartbeat_answer(3)
        assert play.from_client(produce(4, 100)) == b""
        play.loop.advance(29_000)
        assert play.broker.take() == b""
        play.loop.advance(2_000)
        assert play.broker.take() == produce(4, 100)

    def test_a_raised_quota_lets_go_who_waits(self) -> None:
        play = produce_quota()
        play.from_client(heartbeat(1))
        play.from_broker(heartbeat_answer(1))
        play.from_client(produce(2, 400 * KIB) + produce(3, 100))
        play.loop.advance(1000)
        play.broker.take()
        play.engine.apply(Policy({Entity(client_id="app"): {PRODUCER: 100 * KIB}}), play.loop.now_ms)
        play.throttling.reconsider()
        assert play.broker.take() == produce(3, 100)

    def test_a_changed_quota_holds_for_the_next_request_of_an_open_connection(self) -> None:
        play = Play()
        play.from_client(produce(1, 100 * KIB))
        assert not play.client.paused
        play.engine.apply(produce_quota().engine._policy, play.loop.now_ms)
        play.from_client(produce(2, 12 * KIB))
        assert play.client.paused


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
