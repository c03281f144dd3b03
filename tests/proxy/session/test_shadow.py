"""Shadow tells what enforcement would have done: the same paced demand under both, and the figures side by side."""

from collections import deque
from dataclasses import dataclass

import pytest

from quotas.kinds import QuotaKind
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
)

SECONDS = 60


@dataclass(frozen=True, slots=True)
class Figures:
    """What the metrics and the usage records say after the demand."""

    share: float
    throttle_s: float
    throttled: int
    sent: int


def paced(kind: QuotaKind, mode: str, limit: float, size: int, demand: float) -> Figures:
    """Let requests (or answers) of ``size`` bytes fall due at ``demand`` bytes a second; who is held sends later."""
    play = Play({kind: limit}, mode=mode)
    play.worker.request_limit = play.worker.response_limit = 10**8
    due: deque[int] = deque()
    next_ms, sent, muted_ms = 0.0, 0, 0
    for now_ms in range(SECONDS * 1000):
        while next_ms <= now_ms:
            due.append(sent)
            next_ms += size / demand * 1000
        while due and not play.client.paused and not play.session.in_flight:
            due.popleft()
            sent += 1
            send(play, kind, sent, size)
        if play.session.in_flight and kind is PRODUCER:
            play.from_broker(produce_answer(sent))
        elif play.session.in_flight and play.broker.sent:
            play.broker.take()
            play.from_broker(fetch_answer(sent, size - 14))
        play.loop.advance(1)
        if now_ms % 1000 == 999:
            play.throttling.tidy(play.loop.now_ms)
            for key in play.meters:
                row = play.meters[key].take(play.loop.now_ms)[0][-6:]
                muted_ms += sum(int(str(row[at])) for at in (2, 5))
    (usage,) = [usage for usage in play.engine.usage(play.loop.now_ms) if usage.kind is kind]
    return Figures(muted_ms / SECONDS / 1000, usage.throttle_ms_total / 1000, usage.throttled_total, sent)


def send(play: Play, kind: QuotaKind, number: int, size: int) -> None:
    request = produce(number, size) if kind is PRODUCER else fetch(number)
    play.session.requests.feed(request, play.loop.now_ms)


@pytest.mark.long
@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER])
@pytest.mark.parametrize("part", [1.3, 0.95, 0.7, 0.4])
@pytest.mark.parametrize("size", [500, 5000])
def test_the_throttled_share_is_that_of_enforcement(kind: QuotaKind, part: float, size: int) -> None:
    demand = 10_000.0
    enforced, shadow = (paced(kind, mode, part * demand, size, demand) for mode in ("enforce", "shadow"))
    assert shadow.share == pytest.approx(enforced.share, abs=0.05)
    assert shadow.throttle_s == pytest.approx(enforced.throttle_s, abs=0.05 * SECONDS)
    assert bool(shadow.throttled) == bool(enforced.throttled) == (part < 1)
    assert shadow.sent >= enforced.sent


def test_a_fetch_passes_as_it_came() -> None:
    play = fetch_quota(mode="shadow")
    assert play.from_client(fetch(1) + fetch(2)) == fetch(1) + fetch(2)
    assert play.from_broker(fetch_answer(1, 40 * KIB)) == fetch_answer(1, 40 * KIB)
    assert not play.client.paused
    (usage,) = play.engine.usage(play.loop.now_ms)
    assert usage.throttled_total == 1


def test_shadow_throttle_time_excludes_requests_clients_would_abandon() -> None:
    """Demand of a hundred times the quota for a minute: clients give up after two, and so does the model."""
    play = Play({PRODUCER: KIB}, mode="shadow")
    for number in range(600):
        play.from_client(produce(number, 10 * KIB))
        play.from_broker(produce_answer(number))
        play.loop.advance(100)
    play.throttling.tidy(play.loop.now_ms)
    play.loop.advance(130_000)
    play.throttling.tidy(play.loop.now_ms)
    (usage,) = play.engine.usage(play.loop.now_ms)
    assert usage.throttle_ms_total <= 60_000 + 130_000 + 20_000
