"""The model of request time: what is usual, what the way takes, and what a client's next request may cost."""

import pytest

from proxy.usage.request_times import BrokerTimes, ClientTimes, RequestTimes, may_wait, usual_ns

METADATA, HEARTBEAT, API_VERSIONS, JOIN_GROUP, PRODUCE, FETCH = 3, 12, 18, 11, 0, 1
MS = 1_000_000


class TestTheWay:
    def test_it_is_the_least_that_a_request_has_taken(self) -> None:
        times = BrokerTimes()
        assert times.floor_ns(API_VERSIONS, 3 * MS, 0) == 3 * MS
        assert times.floor_ns(METADATA, 9 * MS, 10) == 3 * MS
        assert times.floor_ns(METADATA, 2 * MS, 20) == 2 * MS

    def test_who_sends_dear_requests_alone_does_not_make_the_way_longer(self) -> None:
        times = BrokerTimes()
        for now_ms in range(0, 600_000, 1000):
            assert times.floor_ns(METADATA, 50 * MS, now_ms) <= MS

    def test_a_way_that_has_become_longer_is_found_out(self) -> None:
        times = BrokerTimes()
        times.floor_ns(HEARTBEAT, MS, 0)
        for now_ms in range(1000, 180_000, 1000):
            floor_ns = times.floor_ns(HEARTBEAT, 4 * MS, now_ms)
        assert floor_ns == 4 * MS


class TestWhatIsUsual:
    def test_it_grows_with_the_bytes_and_records_are_written_at_more_cost_than_sent(self) -> None:
        assert usual_ns(PRODUCE, 2**20) > usual_ns(FETCH, 2**20) > usual_ns(FETCH, 100)
        assert usual_ns(METADATA, 10_000) > usual_ns(METADATA, 100)

    def test_what_waits_for_others_is_known(self) -> None:
        assert may_wait(JOIN_GROUP)
        assert not may_wait(METADATA)
        assert not may_wait(HEARTBEAT)


def test_what_the_next_one_may_cost_rises_at_once_and_falls_slowly() -> None:
    times = ClientTimes()
    assert times.cost_us(METADATA) is None
    for us in (100, 5_000, 100):
        times.cost(METADATA, us)
    assert times.cost_us(METADATA) == pytest.approx(4_387.5)
    for _ in range(60):
        times.cost(METADATA, 100)
    assert times.cost_us(METADATA) == pytest.approx(100, rel=0.05)
    assert times.cost_us(HEARTBEAT) is None


def test_a_busy_loop_is_taken_into_account_within_bounds() -> None:
    times = RequestTimes(lambda: 0, lambda: 0)
    least = times.blur_ns
    for _ in range(100):
        times.round_took(MS)
    assert times.blur_ns == pytest.approx(least + 2 * MS, rel=0.01)
    for _ in range(100):
        times.round_took(100 * MS)
    assert times.blur_ns == 5 * MS


def test_brokers_are_told_apart() -> None:
    times = RequestTimes(lambda: 0, lambda: 0)
    assert times.of(1) is times.of(1)
    assert times.of(1) is not times.of(2)
