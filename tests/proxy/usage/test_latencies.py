from math import inf

import pytest

from proxy.usage import latencies
from proxy.usage.latencies import BOUNDS_MS, FOLDED_BROKER, Latencies
from tests.proxy.playbook import (
    KIB,
    Play,
    fetch,
    fetch_answer,
    fetch_quota,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    produce_quota,
)

PRODUCE, FETCH, LIST_OFFSETS, HEARTBEAT = 0, 1, 2, 12


def below(latencies: Latencies, key: tuple[int, int]) -> dict[float, int]:
    """Return how many answers took less than each bound, of those where there are any more."""
    return cumulated(latencies.snapshot()[key].counts)


def held(play: Play, key: tuple[int, int]) -> tuple[dict[float, int], int]:
    """The same of what the proxy took, and its sum in ms."""
    times = play.worker.latencies.proxy_snapshot()[key]
    return cumulated(times.counts), times.sum_ms


def cumulated(counts: tuple[int, ...]) -> dict[float, int]:
    total, shown = 0, {}
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
    times.of(1).count(PRODUCE, took_ms)
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
    times = play.worker.latencies
    assert below(times, (PRODUCE, 1)) == {5: 1}
    assert below(times, (FETCH, 1)) == {500: 1}
    assert below(times, (HEARTBEAT, 1)) == {1: 1, 10: 2}


def test_quota_wait_of_request_is_not_broker_time() -> None:
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
    assert below(play.worker.latencies, (PRODUCE, 1)) == {1: 1, 2: 2}


def test_an_answer_that_comes_in_parts_is_counted_once() -> None:
    play = Play()
    play.from_client(fetch(1))
    answer = fetch_answer(1, 1000)
    for at in range(0, len(answer), 7):
        play.from_broker(answer[at : at + 7])
    assert sum(below(play.worker.latencies, (FETCH, 1)).values()) == 1


class TestProxyTime:
    """For how long it held a request, and the answer."""

    def test_request_forwarded_at_once_has_no_proxy_time(self) -> None:
        play = Play()
        for number, (asked, answered) in enumerate(
            ((produce(1, 10), produce_answer(1)), (produce(2, 10), produce_answer(2)), (produce(3, 10), b""))
        ):
            play.from_client(asked)
            play.loop.advance(300 * number)
            play.from_broker(answered)
        assert held(play, (PRODUCE, 1)) == ({1: 2}, 0)

    def test_quota_wait_counts_for_requests_queued_behind_it(self) -> None:
        play = fetch_quota(max_hold_ms=30_000)
        play.from_client(heartbeat(1))  # of a group: its Fetch waits, and it is not muted
        play.from_broker(heartbeat_answer(1))
        play.from_client(fetch(2))
        play.from_broker(fetch_answer(2, 12 * KIB))
        assert play.from_client(fetch(3) + heartbeat(4)) == b""
        before_ms = play.loop.now_ms
        while not play.broker.sent:
            play.loop.advance(10)
        waited_ms = play.loop.now_ms - before_ms
        play.loop.advance(1)
        play.from_broker(fetch_answer(3, 10) + heartbeat_answer(4))
        for api in (FETCH, HEARTBEAT):
            counts, sum_ms = held(play, (api, 1))
            assert (counts[1], max(counts.values())) == (1, 2)
            assert sum_ms == pytest.approx(waited_ms, abs=10)
            assert max(below(play.worker.latencies, (api, 1))) <= 25

    def test_wait_for_rest_of_request_is_not_proxy_time(self) -> None:
        play = Play()
        asked = fetch(1)
        for part in (asked[:20], asked[20:40], asked[40:]):
            play.from_client(part)
            play.loop.advance(700)
        play.from_broker(fetch_answer(1, 10))
        assert held(play, (FETCH, 1)) == ({1: 1}, 0)

    def test_wait_for_broker_connection_counts_as_proxy_time(self) -> None:
        play = Play(connected=False)
        play.from_client(produce(1, 10) + produce(2, 10))
        play.loop.advance(40)
        play.session.connected(play.broker, 1)
        play.loop.advance(5)
        play.from_broker(produce_answer(1) + produce_answer(2))
        assert held(play, (PRODUCE, 1)) == ({50: 2}, 80)
        assert below(play.worker.latencies, (PRODUCE, 1)) == {10: 2}

    def test_delayed_answer_and_answers_behind_it_count_as_proxy_time(self) -> None:
        play = fetch_quota(response="delay")
        play.from_client(fetch(1) + list_offsets(2))
        play.loop.advance(20)
        assert play.from_broker(fetch_answer(1, 12 * KIB) + list_offsets_answer(2)) == b""
        play.loop.advance(60_000)
        assert play.client.take().endswith(list_offsets_answer(2))
        for api in (FETCH, LIST_OFFSETS):
            assert below(play.worker.latencies, (api, 1)) == {25: 1}
            counts, sum_ms = held(play, (api, 1))
            assert (counts, 1000 < sum_ms < 2500) == ({2500: 1}, True)

    def test_two_throttled_at_once_are_held_one_behind_the_other(self) -> None:
        play = produce_quota()
        play.from_client(produce(1, 12_000) + produce(2, 100) + produce(3, 100))
        play.from_broker(produce_answer(1))
        waited_ms = 0
        for number in (2, 3):
            while not play.broker.sent:
                play.loop.advance(10)
                waited_ms += 10 * (4 - number)  # of those that wait still
            assert play.broker.take() == produce(number, 100)
            play.from_broker(produce_answer(number))
        times = play.worker.latencies.proxy_snapshot()[PRODUCE, 1]
        assert sum(times.counts) == 3
        assert times.counts[0] == 1
        assert times.sum_ms == pytest.approx(waited_ms, abs=20)


def test_pairs_beyond_the_bound_share_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Latencies()
    for node_id in range(latencies.MOST + 5):
        times.of(node_id).count(PRODUCE, 1)
    assert len(times.snapshot()) == latencies.MOST + 1
    assert below(times, (PRODUCE, FOLDED_BROKER)) == {2: 5}
