from math import inf

import pytest

from proxy.session import latencies
from proxy.session.latencies import BOUNDS_MS, OTHER, Latencies
from tests.proxy.playbook import (
    Play,
    fetch,
    fetch_answer,
    heartbeat,
    heartbeat_answer,
    produce,
    produce_answer,
    produce_quota,
)

PRODUCE, FETCH, HEARTBEAT = 0, 1, 12


def below(latencies: Latencies, key: tuple[int, int]) -> dict[float, int]:
    """Return how many answers took less than each bound, of those where there are any more."""
    counts, total, shown = latencies.snapshot()[key].counts, 0, {}
    for bound, count in zip((*BOUNDS_MS, inf), counts, strict=True):
        total += count
        if count:
            shown[bound] = total
    return shown


@pytest.mark.parametrize(
    ("took_ms", "bound"),
    [
        (0, 1),
        (1, 2),
        (2, 5),
        (4, 5),
        (5, 10),
        (99, 100),
        (100, 250),
        (511, 1000),
        (29_999, 30_000),
        (30_000, inf),
    ],
)
def test_an_answer_is_in_the_bucket_that_ends_behind_it(took_ms: int, bound: float) -> None:
    times = Latencies()
    times.of(1).note(PRODUCE, took_ms)
    assert below(times, (PRODUCE, 1)) == {bound: 1}
    assert times.snapshot()[PRODUCE, 1].sum_ms == took_ms


def test_every_answer_of_a_session_is_counted_by_its_api_and_broker() -> None:
    play = Play()
    for asked, answered, took_ms in (
        (produce(1, 10), produce_answer(1), 3),
        (fetch(2), fetch_answer(2, 10), 480),
        (heartbeat(3), heartbeat_answer(3), 0),
        (heartbeat(4), heartbeat_answer(4), 7),
    ):
        play.from_client(asked)
        play.loop.advance(took_ms)
        play.from_broker(answered)
    times = play.rules.latencies
    assert below(times, (PRODUCE, 1)) == {5: 1}
    assert below(times, (FETCH, 1)) == {500: 1}
    assert below(times, (HEARTBEAT, 1)) == {1: 1, 10: 2}


def test_what_a_request_waits_for_its_quota_is_not_the_brokers_time() -> None:
    play = produce_quota()
    play.from_client(produce(1, 20_000))
    play.from_broker(produce_answer(1))
    play.from_client(produce(2, 100))
    waited_ms = 0
    while not play.broker.sent:
        play.loop.advance(10)
        waited_ms += 10
    play.loop.advance(1)
    play.from_broker(produce_answer(2))
    assert waited_ms > 5000
    assert below(play.rules.latencies, (PRODUCE, 1)) == {1: 1, 2: 2}


def test_an_answer_that_comes_in_parts_is_counted_once() -> None:
    play = Play()
    play.from_client(fetch(1))
    answer = fetch_answer(1, 1000)
    for at in range(0, len(answer), 7):
        play.from_broker(answer[at : at + 7])
    assert sum(below(play.rules.latencies, (FETCH, 1)).values()) == 1


def test_pairs_beyond_the_bound_share_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Latencies()
    for node_id in range(latencies.MOST + 5):
        times.of(node_id).note(PRODUCE, 1)
    assert len(times.snapshot()) == latencies.MOST + 1
    assert below(times, (PRODUCE, OTHER)) == {2: 5}
