"""The mode of quotas turned while clients are held: who waits goes at once, and who is held from then on owes what a
broker would remember, and nothing of what he was free to do.
"""

import pytest

from proxy.session.flow import THROTTLED
from proxy.session.throttling import AT_ONCE
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.proxy.crowd import Crowd, Shape
from tests.proxy.playbook import (
    CONSUMER,
    KIB,
    PRODUCER,
    Play,
    fetch,
    fetch_answer,
    fetch_quota,
    produce,
    produce_answer,
    produce_quota,
    throttle_of,
)
from tests.proxy.session.another import Another


def turn(play: Play, mode: str) -> None:
    """As ``Worker.set_mode``."""
    play.engine.rejudge(play.loop.now_ms)
    play.throttling.set_mode(mode, play.loop.now_ms)


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_mode_shadow_or_off_releases_muted_and_queued_clients(mode: str) -> None:
    play = produce_quota()
    play.from_client(produce(1, 12 * KIB))
    play.from_broker(produce_answer(1))
    others = [Another(play) for _ in range(20)]
    assert [other.send(produce(1, 100)) for other in others] == [b""] * 20
    assert play.client.paused
    turn(play, mode)
    assert not play.client.paused
    assert [other.broker.take() for other in others] == [produce(1, 100)] * 20
    assert sum(play.throttling.queue_sizes().values()) == 0


@pytest.mark.parametrize("turned", ["shadow", "off", "raised"])
def test_a_crowd_goes_some_at_a_time_with_others_turns_in_between(turned: str) -> None:
    """Four thousand that wait are let go in a quarter of a second of work: nobody else may wait for that."""
    play = produce_quota()
    play.from_client(produce(1, 12 * KIB))
    play.from_broker(produce_answer(1))
    others = [Another(play) for _ in range(230)]
    assert not any(other.send(produce(1, 100)) for other in others)
    if turned == "raised":
        play.engine.apply(Policy({Entity(client_id="app"): {PRODUCER: 1e9}}), play.loop.now_ms)
        play.throttling.reconsider()
    else:
        turn(play, turned)
    gone, turns = sum(bool(other.broker.sent) for other in others), 0
    while gone < len(others):
        others[200].session.close()  # one who leaves meanwhile is asked nothing
        assert 0 < gone <= AT_ONCE * (turns + 1)
        play.loop.turn()
        turns += 1
        gone = sum(bool(other.broker.sent) or other is others[200] for other in others)
    assert turns >= 4
    play.loop.advance(0)
    muted = 1 if turned == "raised" else 0  # who was throttled already stays so
    assert (play.client.paused, sum(play.throttling.queue_sizes().values())) == (bool(muted), muted)


def test_throttles_ending_together_are_lifted_in_bounded_turns() -> None:
    play = produce_quota()
    many = [Muted() for _ in range(3 * AT_ONCE + 1)]
    for muted in many:
        play.throttling.mute(PRODUCER, muted.throttle_over, muted.abort, play.loop.now_ms + 10)
    play.loop.now_ms += 10
    ended: list[Muted] = []
    while len(ended) < len(many):
        before = len(ended)
        play.loop.turn()
        ended = [muted for muted in many if muted.is_over]
        assert 0 < len(ended) - before <= AT_ONCE


class Muted:
    is_over = False

    def throttle_over(self, now_ms: int) -> None:
        self.is_over = True

    def abort(self) -> None:
        raise AssertionError


def test_a_connection_in_the_middle_of_its_requests_is_held_no_more() -> None:
    """The hot path goes by what it remembers of the last request."""
    play = produce_quota()
    for number in range(3):
        play.from_client(produce(number, 1000))
        play.from_broker(produce_answer(number))
    turn(play, "shadow")
    for number in range(3, 50):
        assert play.from_client(produce(number, 1000)) == produce(number, 1000)
        assert play.from_broker(produce_answer(number)) == produce_answer(number)
    assert not play.client.paused


def test_an_answer_that_is_held_back_goes_at_once() -> None:
    play = produce_quota(response="delay")
    play.from_client(produce(1, 12 * KIB))
    assert play.from_broker(produce_answer(1)) == b""
    turn(play, "shadow")
    assert play.client.take()
    assert not play.session.requests.reasons & THROTTLED


def test_a_fetch_that_waits_goes_as_it_came() -> None:
    play = fetch_quota()
    play.from_client(fetch(1))
    play.broker.take()
    play.from_broker(fetch_answer(1, 30 * KIB))
    other = Another(play)
    assert other.send(fetch(1)) == b""
    turn(play, "off")
    assert other.broker.take() == fetch(1)


def test_the_rest_of_a_large_produce_comes_without_a_wait() -> None:
    play = produce_quota()
    play.worker.request_limit = 10**6
    whole = produce(1, 100 * KIB)
    play.from_client(whole[: 20 * KIB])
    other = Another(play)
    large = produce(1, 90 * KIB)
    other.send(large[: 15 * KIB])
    turn(play, "shadow")
    play.from_client(whole[20 * KIB :])
    play.loop.advance(0)
    other.send(large[15 * KIB :])
    assert not play.client.paused
    assert not other.client.paused


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER])
def test_traffic_in_shadow_is_not_owed_after_a_pause(kind: str) -> None:
    """A hundred times the limit in shadow, a pause, and then the limit: nobody is held for what is long gone."""
    play = Play({PRODUCER: KIB, CONSUMER: KIB}, mode="shadow")
    for number in range(200):
        play.from_client(produce(number, 20 * KIB) if kind == PRODUCER else fetch(number))
        play.from_broker(produce_answer(number) if kind == PRODUCER else fetch_answer(number, 20 * KIB))
        play.loop.advance(1000)
        play.throttling.tidy(play.loop.now_ms)
    play.loop.advance(12_000)
    turn(play, "enforce")
    assert play.from_client(produce(500, 100) if kind == PRODUCER else fetch(500, 5000))


def test_enforcement_turned_on_counts_the_window_in_shadow() -> None:
    play = Play({PRODUCER: KIB}, mode="shadow")
    for number in range(20):
        play.from_client(produce(number, 2 * KIB))
        play.from_broker(produce_answer(number))
        play.loop.advance(1000)
    turn(play, "enforce")
    (usage,) = play.engine.usage(play.loop.now_ms)
    assert usage.rate == pytest.approx(2 * KIB, rel=0.2)
    assert play.from_client(produce(500, 100)) == b"", "over its limit, and so held"
    play.loop.advance(13_000)
    assert play.broker.take() == produce(500, 100), "no longer than the window says"


@pytest.mark.parametrize("of_rule", [False, True])
def test_client_far_over_limit_in_shadow_owes_one_window(of_rule: bool) -> None:
    """A hundred times the limit, while nobody was held for it: in the mode of all quotas, or of the rule alone."""
    entity = Entity(client_id="app")
    limits = {entity: {PRODUCER: float(KIB)}}
    shadow = Policy(limits, {entity: Terms(shadow=True)})
    play = Play(policy=shadow if of_rule else Policy(limits), mode="enforce" if of_rule else "shadow")
    for number in range(20):
        play.from_client(produce(number, 100 * KIB))
        play.from_broker(produce_answer(number))
        play.loop.advance(1000)
    charged = play.engine.resolve("", "app", PRODUCER, 1).recorded_total
    if of_rule:
        play.engine.apply(Policy(limits), play.loop.now_ms)
    else:
        turn(play, "enforce")
    bound = play.engine.resolve("", "app", PRODUCER, 1)
    assert bound.recorded_total == pytest.approx(charged)
    assert 10_000 < bound.owed_ms(play.loop.now_ms) <= 11_001
    assert play.from_client(produce(500, 100)) == b""
    play.loop.advance(11_001)
    assert play.broker.take() == produce(500, 100)
    assert throttle_of(play.from_broker(produce_answer(500))) <= 11_001


def test_topics_that_were_never_refused_are_owed_for_no_longer_than_a_window() -> None:
    kind = QuotaKind.CONTROLLER_MUTATION_RATE
    play = Play({kind: 1.0}, mode="shadow")
    bound = play.engine.resolve("", "app", kind, 1)
    bound.charge(1000, play.loop.now_ms)
    turn(play, "enforce")
    assert bound.check(play.loop.now_ms) == 11_000


def test_mode_off_counts_no_further_throttles() -> None:
    play = produce_quota()
    play.from_client(produce(1, 12 * KIB))
    turn(play, "off")
    (before,) = play.engine.usage(play.loop.now_ms)
    for number in range(2, 40):
        play.from_client(produce(number, KIB))
        play.from_broker(produce_answer(number))
        play.loop.advance(100)
        play.throttling.tidy(play.loop.now_ms)
    (after,) = play.engine.usage(play.loop.now_ms)
    assert after.throttled_total == before.throttled_total


def test_mode_turned_off_and_on_keeps_the_throttled_rate() -> None:
    plain, turned = (Crowd(Shape(PRODUCER, connections=20, size=500, limit=10_000), seconds=20) for _ in range(2))
    turn(turned.play, "shadow")
    turned.pump()
    turn(turned.play, "enforce")
    for crowd in (plain, turned):
        for _ in range(600):
            crowd.play.loop.advance(100)
            crowd.pump()
    assert turned.rate(20, 80) == pytest.approx(plain.rate(20, 80), abs=0.05)
