"""Rules in shadow, limits that are proposed, bursts and delays of single rules, while other rules are enforced."""

from collections import deque
from dataclasses import dataclass

import pytest

from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.proxy.playbook import (
    CONSUMER,
    KIB,
    PRODUCER,
    Play,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
)
from tests.proxy.session.another import Another

APP, OTHER = Entity(client_id="app"), Entity(client_id="other")


def ruled(terms: Terms, limit: float = KIB, mode: str = "enforce") -> Play:
    limits = {PRODUCER: limit, CONSUMER: limit}
    return Play(policy=Policy({APP: limits, OTHER: limits}, {APP: terms}), mode=mode)


def usage_of(play: Play, kind: QuotaKind = PRODUCER, client_id: str = "app"):  # type: ignore[no-untyped-def]  # a CounterState
    (usage,) = [
        each for each in play.engine.usage(play.loop.now_ms) if (each.kind, each.client_id) == (kind, client_id)
    ]
    return usage


def test_a_rule_in_shadow_holds_nobody_and_the_next_one_does() -> None:
    play = ruled(Terms(shadow=True))
    for number in range(20):
        assert play.from_client(produce(number, 2 * KIB)) == produce(number, 2 * KIB)
        assert play.from_broker(produce_answer(number)) == produce_answer(number)
    assert not play.client.paused
    usage = usage_of(play)
    assert (usage.throttled_total, usage.shadow_throttled_total) == (0, 1)
    other = Another(play)
    other.send(produce(1, 12 * KIB, client_id=b"other"))
    assert other.client.paused
    assert usage_of(play, client_id="other").throttled_total == 1


def test_a_fetch_under_a_rule_in_shadow_passes_as_it_came() -> None:
    play = ruled(Terms(shadow=True))
    assert play.from_client(fetch(1) + fetch(2)) == fetch(1) + fetch(2)
    assert play.from_broker(fetch_answer(1, 40 * KIB)) == fetch_answer(1, 40 * KIB)
    assert not play.client.paused
    assert usage_of(play, CONSUMER).shadow_throttled_total == 1


def test_proposed_limit_is_measured_while_current_one_is_enforced() -> None:
    play = ruled(Terms(proposed={PRODUCER: KIB / 2}))
    for number in range(7):  # five seconds' worth of the limit in force, more than ten of the one proposed
        play.from_client(produce(number, KIB))
        play.from_broker(produce_answer(number))
    assert not play.client.paused
    assert (usage_of(play).throttled_total, usage_of(play).shadow_throttled_total) == (0, 1)
    for number in range(7, 12):
        play.from_client(produce(number, KIB))
        play.from_broker(produce_answer(number))
    assert play.client.paused
    assert usage_of(play).throttled_total == 1


def test_usage_record_has_throttles_of_proposed_limit() -> None:
    play = ruled(Terms(proposed={PRODUCER: KIB / 2}))
    play.from_client(produce(1, 6 * KIB))
    (key,) = [key for key in play.meters if key.client_id == "app"]
    meter = play.meters[key]
    play.loop.advance(1000)
    meter.use_of(PRODUCER).shadow_limit = KIB / 2
    row, further = meter.take(play.loop.now_ms)
    (limit, throttled, throttle_ms, muted_ms) = further[PRODUCER.row.shadow_columns]
    assert (limit, throttled, muted_ms) == (KIB / 2, 1, 1000)
    assert int(str(throttle_ms)) > 1000
    assert row[-6:] == (0, 0, 0, 0, 0, 0)


def test_shadow_mode_counts_current_and_proposed_limit_off_neither() -> None:
    for mode, counted in (("shadow", (1, 1)), ("off", (0, 0))):
        play = Play(policy=Policy({}) if mode == "off" else None, mode=mode)
        if mode == "shadow":
            play = ruled(Terms(proposed={PRODUCER: KIB / 2}), mode=mode)
        play.from_client(produce(1, 12 * KIB))
        usages = play.engine.usage(play.loop.now_ms)
        found = [(usage.throttled_total, usage.shadow_throttled_total) for usage in usages if usage.kind is PRODUCER]
        assert found == ([counted] if mode == "shadow" else [])
        assert not play.client.paused


@pytest.mark.parametrize("size", [500, 3000])
def test_max_delay_of_rule_bounds_only_its_throttles(size: int) -> None:
    play = ruled(Terms(max_delay_ms=300))
    play.from_client(produce(1, 30 * KIB))
    play.from_broker(produce_answer(1))
    other = Another(play)
    assert other.send(produce(1, size)) == b""
    play.loop.advance(301)
    assert not play.client.paused
    assert other.broker.take() == produce(1, size)
    third = Another(play)
    third.send(produce(1, 30 * KIB, client_id=b"other"))
    play.loop.advance(5000)
    assert third.client.paused, "the other rule has no ceiling"


def test_debt_beyond_max_delay_stays_owed_by_all_connections() -> None:
    play = ruled(Terms(max_delay_ms=300))
    play.from_client(produce(1, 100 * KIB))
    owed_ms = play.session.identity.account.bounds(PRODUCER)[0].owed_ms(play.loop.now_ms)
    others = [Another(play) for _ in range(20)]
    for other in others:
        other.send(produce(1, KIB))
    play.loop.advance(301)
    assert play.session.identity.account.bounds(PRODUCER)[0].owed_ms(play.loop.now_ms) > owed_ms


def test_a_rule_out_of_shadow_holds_a_connection_that_is_in_full_flight() -> None:
    play = ruled(Terms(shadow=True))
    for number in range(20):
        play.from_client(produce(number, 2 * KIB))
        play.from_broker(produce_answer(number))
    limits = {PRODUCER: KIB, CONSUMER: KIB}
    play.engine.apply(Policy({APP: limits, OTHER: limits}), play.loop.now_ms)
    play.throttling.reconsider()
    assert play.from_client(produce(50, 100)) == b""
    play.engine.apply(Policy({APP: limits, OTHER: limits}, {APP: Terms(shadow=True)}), play.loop.now_ms)
    play.throttling.reconsider()
    assert play.broker.take() == produce(50, 100)


# ------------------------------------------------------------------------ the figures, beside those of enforcement


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all connections together."""

    throttle_s: float
    share: float


def crowd(terms: Terms | None, *, connections: int, limit: float, mode: str = "enforce") -> Figures:
    """Let requests fall due on each connection at 1 kB/s, for a minute, with a pause of half a minute in it."""
    size, seconds = 500, 90
    limits = {PRODUCER: limit}
    play = Play(policy=Policy({APP: limits}, {APP: terms} if terms else {}), mode=mode)
    peers = [Another(play) for _ in range(connections)]
    due: list[deque[int]] = [deque() for _ in peers]
    busy = [False] * connections
    sent, muted_ms = [0] * connections, 0
    shadow = terms is not None
    for now_ms in range(0, seconds * 1000, 10):
        resting = 30_000 <= now_ms < 60_000
        for at, peer in enumerate(peers):
            if not resting and (now_ms + 20 * at) % 500 == 0:
                due[at].append(now_ms)
            if due[at] and not peer.client.paused and not busy[at]:
                due[at].popleft()
                sent[at] += 1
                busy[at] = True
                peer.session.requests.feed(produce(sent[at], size), play.loop.now_ms)
            if busy[at] and peer.broker.take():
                peer.session.answers.feed(produce_answer(sent[at]), play.loop.now_ms)
                peer.client.take()
                busy[at] = False
        play.loop.advance(10)
        if now_ms % 1000 == 990:
            play.throttling.tidy(play.loop.now_ms)
            for key in play.meters:
                meter = play.meters[key]
                row, further = meter.take(play.loop.now_ms)
                found = further.get(PRODUCER.row.shadow_columns, (None, 0, 0, 0))
                muted_ms += int(str(found[3] if shadow else row[-4]))
    usage = usage_of(play)
    throttle_ms = usage.shadow_throttle_ms_total if shadow else usage.throttle_ms_total
    return Figures(throttle_ms / 1000, muted_ms / seconds / 1000)


@pytest.mark.long
@pytest.mark.parametrize("part", [1.2, 0.9, 0.6])
@pytest.mark.parametrize("connections", [1, 20])
def test_the_figures_are_those_of_enforcement_with_one_client_and_twenty(part: float, connections: int) -> None:
    limit = part * connections * 1040
    enforced = crowd(None, connections=connections, limit=limit)
    in_shadow = crowd(Terms(shadow=True), connections=connections, limit=limit)
    proposed = crowd(Terms(proposed={PRODUCER: limit}), connections=connections, limit=10 * limit)
    of_mode = crowd(None, connections=connections, limit=limit, mode="shadow")
    assert (enforced.throttle_s > 0) is (part < 1)
    for figures in (in_shadow, proposed, of_mode):
        assert figures.share == pytest.approx(enforced.share, abs=0.05)
        assert figures.throttle_s == pytest.approx(enforced.throttle_s, rel=0.15, abs=1)
