"""What a Produce announces counts for a tenth of a second; then only what has come of it."""

import pytest

from quotas.claims import COMING_MS, DISTRUST_MS
from quotas.entities import Entity
from tests.proxy.playbook import KIB, PRODUCER, Play, produce, produce_answer, produce_quota, throttle_of
from tests.proxy.session.another import Another
from tests.proxy.session.tenants import Connection, between, policy, run


def charged(play: Play) -> float:
    return play.engine.resolve("ANONYMOUS", "app", PRODUCER, 1).recorded_total


@pytest.mark.parametrize("begun", [b"", produce(7, 10, acks=0)], ids=["read by the gate", "like the one before"])
def test_a_claim_that_fits_is_given_back_until_it_comes(begun: bytes) -> None:
    play = produce_quota()
    claim = produce(1, 9 * KIB, acks=0 if begun else 1)
    stranger, victim = Another(play), Another(play)
    assert stranger.send(begun + claim[:200]) == begun + claim[:200]
    before = len(begun) - 4 if begun else 0
    assert charged(play) == before + len(claim) - 4
    play.loop.advance(COMING_MS)
    assert charged(play) == before + 196
    honest = produce(1, 8 * KIB)
    assert victim.send(honest) == honest
    victim.session.answers.feed(produce_answer(1), play.loop.now_ms)
    assert throttle_of(victim.client.take()) == 0
    assert stranger.send(claim[200:]) == claim[200:]
    assert charged(play) == before + len(claim) - 4 + len(honest) - 4


def test_late_rest_of_produce_is_throttled_in_its_answer() -> None:
    play = produce_quota()
    slow, other = Another(play), Another(play)
    claim = produce(1, 9 * KIB)
    slow.send(claim[:200])
    play.loop.advance(COMING_MS)
    other.send(produce(1, 8 * KIB))
    slow.send(claim[200:])
    slow.session.answers.feed(produce_answer(1), play.loop.now_ms)
    assert throttle_of(slow.client.take()) > 5_000


def test_a_claim_that_comes_in_time_is_charged_once() -> None:
    play = produce_quota()
    claim = produce(1, 9 * KIB)
    client = Another(play)
    client.send(claim[:200])
    play.loop.advance(COMING_MS - 1)
    client.send(claim[200:])
    play.loop.advance(1_000)
    assert charged(play) == len(claim) - 4
    assert not play.throttling._alarms.number


def test_a_claim_whose_connection_ends_is_given_back_at_once_and_not_again() -> None:
    play = produce_quota()
    strangers = [Another(play) for _ in range(3)]
    for stranger in strangers:
        stranger.send(produce(1, 2 * KIB)[:200])
    play.loop.advance(10)
    for stranger in strangers:
        stranger.session.close()
    assert charged(play) == 3 * 196
    play.loop.advance(1_000)
    assert charged(play) == 3 * 196


def test_unfulfilled_produce_claim_disables_claims_for_a_second() -> None:
    play = produce_quota()
    Another(play).send(produce(1, 9 * KIB)[:200])
    play.loop.advance(COMING_MS)
    fits, does_not, first = Another(play), Another(play), produce(1, 10, acks=0)
    fits.send(produce(1, 9 * KIB)[:200])
    does_not.send(produce(1, 30 * KIB)[:200])
    Another(play).send(first + produce(1, 9 * KIB)[:200])
    came = 4 * 196 + len(first) - 4
    assert charged(play) == came
    honest = produce(1, 8 * KIB)
    assert Another(play).send(honest) == honest
    play.loop.advance(DISTRUST_MS)
    Another(play).send(produce(1, KIB)[:200])
    assert charged(play) == came + len(honest) - 4 + len(produce(1, KIB)) - 4


@pytest.mark.parametrize("user", ["alice", "bob"])
@pytest.mark.parametrize(("each_s", "least"), [(5, 0.88), (0.2, 0.85)])
def test_claims_that_are_made_again_and_again_take_little_from_who_sends(
    user: str, each_s: float, least: float
) -> None:
    """Twenty connections that announce a Produce of 100 kB, send nothing, and come again after that time."""
    rates = []
    for count in (0, 20):
        play = Play(policy=policy((Entity(client_id="app"), 50_000)))
        victim = Connection(play, "alice", size=10_000)
        for _ in range(int(60 / each_s)):
            strangers = [Connection(play, user) for _ in range(count)]
            for stranger in strangers:
                stranger.session.requests.feed(produce(1, 100_000)[:200], play.loop.now_ms)
            run(play, [victim], each_s)
            for stranger in strangers:
                stranger.session.close()
        rates.append(between([victim], 1_000_000, 1_060_000) / 60 / 50_000)
    assert rates[1] > least * rates[0]
