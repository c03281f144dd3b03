"""request_percentage: what a request is charged, what it is told, and who waits."""

import struct

import pytest

from config.settings import RequestCosts as Prices
from quotas.entities import Default, Entity
from quotas.policy import Policy, Terms
from tests.integration.request_loads import batch
from tests.integration.request_loads import fetch as fetch_of
from tests.integration.request_loads import produce as produce_of
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
    metadata,
    metadata_answer,
    produce,
    produce_answer,
    request,
    throttle_of,
)
from tests.proxy.session.another import Another
from tests.proxy.session.request_play import LIMIT, REQUEST, charged, recorded_us, request_quota, take, told

DEAR_US = 300_000.0
"""More than is allowed at once."""


class TestRequestCharge:
    @pytest.mark.parametrize("ms", [0, 5, 5_000, 60_000])
    def test_broker_time_is_not_charged_to_request_percentage(self, ms: int) -> None:
        """It may stand still, or wait by design for data, for replicas or for other members."""
        for asked, answer in (
            (list_offsets(1), list_offsets_answer(1)),
            (produce(1, 0, acks=-1), produce_answer(1)),
            (fetch(1), fetch_answer(1, 0)),
            (request(11, 5, 1, b""), frame(b"\0\0\0\1" + bytes(30))),
        ):
            play = request_quota()
            got = take(play, asked, answer, ms)
            assert got == answer
            assert 40 <= recorded_us(play) <= 41

    def test_fetch_is_charged_by_answer_size_and_partitions(self) -> None:
        for partitions, kib, expected in ((1, 0, 40 + 1.5), (100, 0, 40 + 150), (0, 1000, 40 + 200), (1, 50, 51.5)):
            play = request_quota(100.0)
            asked = fetch_of("app", "t", 1000, partitions=partitions)
            take(play, asked, fetch_answer(1, kib * KIB), 3)
            assert recorded_us(play) == pytest.approx(expected, abs=2.5)

    def test_a_fetch_session_costs_what_its_partitions_do_though_later_requests_do_not_list_them(self) -> None:
        play = request_quota(100.0)
        take(play, fetch_of("app", "t", 1000, partitions=100, epoch=0), fetch_answer(1, 0))
        first_us = recorded_us(play)
        for epoch in (1, 2):
            take(play, fetch_of("app", "t", 0, partitions=0, session=7, epoch=epoch), fetch_answer(1, 0))
        assert recorded_us(play) == 3 * first_us >= 3 * 190
        take(play, fetch_of("app", "t", 0, partitions=0, epoch=-1), fetch_answer(1, 0))
        assert recorded_us(play) == 3 * first_us + 40

    @pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
    @pytest.mark.parametrize("pieces", [1, 2])
    def test_produce_is_charged_by_bytes_records_and_codec(self, codec: str, pieces: int) -> None:
        records = batch(400, 100, codec)
        asked = produce_of("app", "topic", records)
        play = request_quota(100.0)
        size = -(-len(asked) // pieces)
        for number in range(3):
            for at in range(0, len(asked), size):
                play.from_client(asked[at : at + size])
            play.from_broker(produce_answer(1))
            expected = 40 + 1.7 * len(asked) / KIB + 0.12 * 400 + (40 if codec == "zstd" else 0)
            assert recorded_us(play) == pytest.approx((number + 1) * expected, rel=0.03, abs=3)

    def test_a_header_that_comes_in_two_pieces_hides_no_records(self) -> None:
        asked = produce_of("app", "topic", batch(400, 10, "lz4"))
        for cut in range(20, 140, 7):
            play = request_quota(100.0)
            assert play.from_client(asked[:cut]) + play.from_client(asked[cut:]) == asked
            assert recorded_us(play) >= 40 + 0.12 * 400

    def test_metadata_is_charged_by_size_of_its_answer(self) -> None:
        play = request_quota(100.0)
        take(play, metadata(1), metadata_answer(1, 40 * KIB), 3)
        assert recorded_us(play) == pytest.approx(35 + 40 * 25, abs=3)

    def test_other_requests_are_charged_a_fixed_cost(self) -> None:
        for key, version, expected in ((8, 5, 60), (10, 1, 40), (12, 3, 40), (32, 2, 40)):
            play = request_quota()
            play.from_client(request(key, version, 1, bytes(20)))
            assert recorded_us(play) == expected

    def test_scale_multiplies_the_cost_of_every_request(self) -> None:
        figures = []
        for scale in (1.0, 2.5):
            policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: 1000.0}})
            play = Play(policy=policy, prices=Prices(scale=scale))
            take(play, fetch_of("app", "t", 1000, partitions=100), fetch_answer(1, 100 * KIB))
            take(play, produce_of("app", "t", batch(100, 100, "zstd")), produce_answer(1))
            take(play, metadata(1), metadata_answer(1, 40 * KIB))
            take(play, list_offsets(1), list_offsets_answer(1))
            figures.append(recorded_us(play))
        assert figures[1] == pytest.approx(2.5 * figures[0], rel=0.01)

    def test_requests_without_request_percentage_quota_are_not_charged(self) -> None:
        play = Play({PRODUCER: 10**9, CONSUMER: 10**9})
        take(play, list_offsets(1), list_offsets_answer(1))
        take(play, produce(2, 100), produce_answer(2))
        take(play, fetch(3), fetch_answer(3, 100))
        assert recorded_us(play) == 0

    def test_claimed_produce_bytes_are_charged_only_when_received(self) -> None:
        """It costs those who share the counter what has come of it, and the rest when that has come."""
        play = request_quota()
        whole = produce(1, 900 * KIB)
        play.from_client(whole[: 64 * KIB])
        begun = recorded_us(play)
        assert begun == pytest.approx(40 + 64 * 1.7, abs=2)
        other = Another(play)
        other.send(whole[: 64 * KIB])
        other.session.close()
        assert recorded_us(play) == 2 * begun
        play.from_client(whole[64 * KIB :])
        assert recorded_us(play) == pytest.approx(begun + 40 + 900 * 1.7, abs=4)

    @pytest.mark.parametrize("times", [2, 40])
    def test_requests_taken_in_place_are_charged_as_those_that_are_read_one_by_one(self, times: int) -> None:
        alone, together = request_quota(100.0), request_quota(100.0)
        for number in range(times):
            for each in (produce, list_offsets):
                key = number * 2 + (each is produce)
                answer = produce_answer(key) if each is produce else list_offsets_answer(key)
                asked = each(key, 300)
                alone.session.identity.set_broker(1)  # what is known of the last request is forgotten
                for play in (alone, together):
                    take(play, asked, answer, 1)
        assert recorded_us(together) == recorded_us(alone) > 0
        assert charged(together) == pytest.approx(charged(alone))

    def test_a_chunk_that_goes_over_the_limit_is_charged_as_far_as_it_goes_and_the_rest_waits(self) -> None:
        play = request_quota(other_us=100_000.0)
        asked = [list_offsets(number) for number in range(1, 8)]
        assert play.from_client(b"".join(asked)) == b"".join(asked[:4])
        got = play.from_broker(b"".join(list_offsets_answer(number) for number in range(1, 5)))
        assert (told(got), play.client.paused) == (1000, True)
        assert recorded_us(play) == 400_000

    def test_acks_0_produces_cost_the_same_whole_or_in_pieces(self) -> None:
        figures = []
        for at_once in (True, False):
            play = Play(policy=Policy({Entity(client_id="app"): {REQUEST: 1000.0, PRODUCER: 1e6}}))
            take(play, produce(1, 10), produce_answer(1))
            stream = b"".join(produce(number, 100 * number, acks=number % 3 - 1) for number in range(20))
            size = len(stream) if at_once else 7  # in pieces that are held, and so go by the gates
            sent = b"".join(play.from_client(stream[at : at + size]) for at in range(0, len(stream), size))
            assert sent == stream
            (produced,) = [each for each in play.engine.usage(play.loop.now_ms) if each.kind is PRODUCER]
            (meter,) = [play.meters[key] for key in play.meters]
            counted = (meter.produce_requests, meter.produce_bytes, len(play.session.in_flight))
            figures.append((produced.charged_total, *counted, play.costs.exempt_us, recorded_us(play)))
        assert figures[0][:-2] == figures[1][:-2]
        assert figures[0][-2:] == pytest.approx(figures[1][-2:], rel=0.02)
        assert figures[0][3] == 13

    def test_acks_0_produce_and_login_are_not_charged(self) -> None:
        play = request_quota()
        play.from_client(produce(1, 100, acks=0))
        assert (recorded_us(play), play.costs.exempt_us) == (0, 40)
        play = request_quota(authenticated=False)
        play.from_client(handshake(1, "PLAIN"))
        play.from_broker(frame(b"\0\0\0\1\0\0\0\0\0\1\0\5PLAIN"))
        play.from_client(authenticate(2, b"\0alice\0secret"))
        assert (recorded_us(play), charged(play)) == (0, 0.0)

    def test_request_is_charged_across_change_of_its_quota(self) -> None:
        play = request_quota(50.0)
        play.from_client(metadata(1))
        assert charged(play) > 0
        play.engine.apply(Policy({Entity(client_id="app"): {REQUEST: 50.0}}), play.loop.now_ms)
        play.from_broker(metadata_answer(1, KIB))
        assert charged(play) == pytest.approx((recorded_us(play) - 35) * 1e-4)


class TestRequestThrottle:
    def in_debt(self, percent: float = LIMIT, other_us: float = DEAR_US) -> Play:
        play = request_quota(percent, other_us=other_us)
        take(play, list_offsets(1), list_offsets_answer(1))
        return play

    def test_request_throttle_time_is_at_most_one_window(self) -> None:
        play = request_quota(other_us=DEAR_US)
        assert told(take(play, list_offsets(1), list_offsets_answer(1))) == 1000
        assert play.client.paused
        play.loop.advance(1000)
        assert not play.client.paused

    def test_costly_connection_passes_one_request_per_window(self) -> None:
        play = request_quota(other_us=DEAR_US)
        for number in range(1, 30):
            assert told(take(play, list_offsets(number), list_offsets_answer(number))) == 1000
            play.loop.advance(1000)

    def test_api_versions_answer_carries_the_request_throttle_time(self) -> None:
        play = request_quota(other_us=DEAR_US)
        answer = frame(b"\0\0\0\1\0\0" + b"\0\0\0\1\0\3\0\0\0\7" + bytes(4))
        got = take(play, request(18, 1, 1), answer)
        assert int.from_bytes(got[-4:], "big") == 1000

    def test_delayed_answer_arrives_after_its_throttle_time(self) -> None:
        play = request_quota(response="delay", other_us=DEAR_US)
        assert take(play, list_offsets(1), list_offsets_answer(1)) == b""
        play.loop.advance(1000)
        assert told(play.client.take()) == 1000

    def test_connections_that_a_counter_in_debt_lets_through_are_one_in_each_window(self) -> None:
        """However many there are, and however new."""
        play = self.in_debt()
        others = [Another(play) for _ in range(20)]
        sent = [bool(other.send(list_offsets(1))) for other in others]
        assert sum(sent) <= 1
        for second in range(1, 6):
            play.loop.advance(1000)
            assert sum(bool(other.broker.sent) for other in others) - sum(sent) <= second

    def test_waiting_requests_pass_once_earlier_debt_is_paid(self) -> None:
        """Ten connections, each request of which is a tenth of a second's worth, under a counter that is just full."""
        play = request_quota(other_us=2_000.0)
        for number in range(110):
            Another(play).send(list_offsets(number))
        others = [Another(play) for _ in range(10)]
        sent = [bool(other.send(list_offsets(1))) for other in others]
        assert sum(sent) <= 2
        play.loop.advance(1_100)
        assert all(before or other.broker.take() for before, other in zip(sent, others, strict=True))

    def test_the_longer_throttle_is_told_and_of_equal_ones_that_of_the_request(self) -> None:
        for size, kind in ((13 * KIB, CONSUMER), (11 * KIB - 14, REQUEST), (10 * KIB + 20, REQUEST)):
            policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT, CONSUMER: KIB}})
            play = Play(policy=policy, prices=Prices(fetch_us=DEAR_US))
            play.from_client(fetch(1, min_bytes=0))
            got = play.from_broker(fetch_answer(1, size))
            throttles = {usage.kind: usage.throttle_ms_total for usage in play.engine.usage(play.loop.now_ms)}
            assert throttles[kind] == told(got) >= 1000
            assert sum(throttles.values()) == told(got)
            assert play.throttling.queue_sizes()[kind] == 1

    def test_a_produce_tells_the_longer_one(self) -> None:
        policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT, PRODUCER: KIB}})
        prices = Prices(produce_us=DEAR_US)
        play = Play(policy=policy, prices=prices)
        assert throttle_of(take(play, produce(1, 15 * KIB), produce_answer(1))) > 4000
        assert play.throttling.queue_sizes()[PRODUCER] == 1
        play = Play(policy=policy, prices=prices)
        assert throttle_of(take(play, produce(1, 10 * KIB), produce_answer(1))) == 1000
        assert play.throttling.queue_sizes()[REQUEST] == 1

    def test_a_produce_waits_in_the_counter_that_is_in_debt_and_asks_the_next(self) -> None:
        policy = Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT, PRODUCER: KIB}})
        play = Play(policy=policy, prices=Prices(produce_us=DEAR_US))
        take(play, produce(1, 30 * KIB), produce_answer(1))
        first, other = Another(play), Another(play)
        assert first.send(list_offsets(1)) == list_offsets(1)  # the one of this window
        assert other.send(produce(1, 10)) == b""
        assert play.throttling.queue_sizes()[REQUEST] == 1
        play.loop.advance(2_000)
        assert not other.broker.sent
        assert (play.throttling.queue_sizes()[REQUEST], play.throttling.queue_sizes()[PRODUCER]) == (0, 2)
        play.loop.advance(25_000)
        assert other.broker.take() == produce(1, 10)

    def test_a_fetch_is_answered_with_nothing_after_a_window(self) -> None:
        play = self.in_debt()
        others = [Another(play) for _ in range(5)]
        sent = [bool(other.send(fetch(1))) for other in others]
        play.loop.advance(1_000)
        sent = [before or bool(other.broker.sent) for before, other in zip(sent, others, strict=True)]
        got = [other.client.take() for before, other in zip(sent, others, strict=True) if not before]
        assert len(got) >= 3
        assert {told(answer) for answer in got} == {1000}

    def test_fetches_and_metadata_go_one_at_a_time_so_that_pipelining_gains_nothing(self) -> None:
        """Their cost is known by their responses alone."""
        play = request_quota()
        asked = [metadata(1), metadata(2), fetch(3), fetch(4)]
        assert play.from_client(b"".join(asked)) == asked[0]
        for number, answer in enumerate([metadata_answer(1), metadata_answer(2), fetch_answer(3, 0)]):
            play.from_broker(answer)
            assert play.broker.take() == asked[number + 1]

    def test_shadow_counts_and_holds_nothing(self) -> None:
        play = request_quota(mode="shadow", other_us=DEAR_US)
        got = take(play, list_offsets(1), list_offsets_answer(1))
        assert (told(got), play.client.paused) == (0, False)
        assert Another(play).send(list_offsets(1)) == list_offsets(1)
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert (usage.throttled_total, usage.throttle_ms_total) == (1, 1000)
        assert usage.charged_total == pytest.approx(60.0)

    def test_shadow_counts_one_throttle_for_a_request_and_its_response(self) -> None:
        play = Play(
            policy=Policy({Entity(user=Default.DEFAULT): {REQUEST: LIMIT}}),
            prices=Prices(metadata_us=DEAR_US),
            mode="shadow",
        )
        take(play, metadata(1), metadata_answer(1, 10 * KIB))
        (usage,) = play.engine.usage(play.loop.now_ms)
        assert usage.throttled_total == 1

    def test_a_rule_in_shadow_and_a_proposal_count_and_hold_nothing(self) -> None:
        whose = Entity(user=Default.DEFAULT)
        for limit, terms in ((LIMIT, Terms(shadow=True)), (100 * LIMIT, Terms(proposed={REQUEST: LIMIT}))):
            play = Play(policy=Policy({whose: {REQUEST: limit}}, {whose: terms}), prices=Prices(other_us=DEAR_US))
            for number in range(1, 5):
                got = take(play, list_offsets(number), list_offsets_answer(number))
                assert (told(got), play.client.paused) == (0, False)
            (usage,) = play.engine.usage(play.loop.now_ms)
            assert usage.throttled_total == 0
            assert usage.shadow_throttled_total > 0

    def test_a_cap_holds_beside_the_quota_that_wins(self) -> None:
        cap = Entity(user="ANONYMOUS", cap=True)
        policy = Policy({Entity(client_id="app"): {REQUEST: 100.0}, cap: {REQUEST: LIMIT}})
        play = Play(policy=policy, prices=Prices(other_us=DEAR_US))
        assert told(take(play, list_offsets(1), list_offsets_answer(1))) == 1000
        assert play.client.paused


def test_no_chunk_makes_a_claim_of_partitions_or_records_that_is_not_paid_for() -> None:
    """Whatever stands in a Fetch or a Produce of that size, it costs something between a base and a bound."""
    for filler in (b"\0", b"\xff", b"\x7f"):
        play = request_quota(1e6)
        body = struct.pack(">hhi", -1, 1, 1000) + filler * 500
        play.from_client(request(0, 7, 1, body))
        assert 40 <= recorded_us(play) <= 40 + 600 * 0.13
