"""The model of request time: what is usual, what the way takes, and what a client's next request may cost."""

import pytest

from proxy.usage.request_times import ApiTimes, BrokerTimes, ClientTimes, RequestTimes, may_wait, table_ns

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
        assert table_ns(PRODUCE, 2**20, 50) > table_ns(FETCH, 100, 2**20) > table_ns(FETCH, 100, 100)
        assert table_ns(METADATA, 30, 10_000) > table_ns(METADATA, 30, 100)

    def test_a_fetch_of_many_partitions_is_work_though_it_finds_nothing(self) -> None:
        assert table_ns(FETCH, 2_900, 4_200) > 4 * table_ns(FETCH, 100, 70)

    def test_records_are_work_however_small_they_were_compressed(self) -> None:
        times = ClientTimes()
        plain_ns = times.usual_ns(PRODUCE, 20_000, 50)
        times.produced(0.0)
        assert times.usual_ns(PRODUCE, 20_000, 50) == plain_ns
        times.produced(400 / 20_000)
        assert times.usual_ns(PRODUCE, 20_000, 50) - plain_ns == pytest.approx(400 * 400)
        assert times.usual_ns(FETCH, 20_000, 50) == table_ns(FETCH, 20_000, 50)

    def test_what_waits_for_others_is_known(self) -> None:
        assert may_wait(JOIN_GROUP)
        assert not may_wait(METADATA)
        assert not may_wait(HEARTBEAT)


class TestWhatIsWorkForCertain:
    """Late threads and queues add to what a request takes, now and then; its work is in each."""

    def take(self, times: ApiTimes, took_ms: list[float]) -> float:
        """In milliseconds, as their last one is judged; a tenth of one is never certain."""
        for ms in took_ms:
            times.note((ms + 0.1) * MS)
        return times.certain_ns((ms + 0.1) * MS) / MS

    def test_a_few_say_nothing(self) -> None:
        assert self.take(ApiTimes(METADATA), [3.0] * 31) <= 0

    def test_it_is_what_nearly_all_of_them_took(self) -> None:
        took_ms = [0.5 + late_ms for late_ms in (0.0, 4.0, 9.0, 0.1) * 8]
        assert self.take(ApiTimes(METADATA), [*took_ms, 9.0]) == pytest.approx(0.5, abs=0.1)

    def test_one_that_was_never_there_does_not_count(self) -> None:
        """Its answer came with that of the one before."""
        assert self.take(ApiTimes(METADATA), [0.0, *[0.5] * 31, 0.5]) == pytest.approx(0.5)

    def test_no_request_is_taken_for_longer_than_it_was_there(self) -> None:
        assert self.take(ApiTimes(METADATA), [*[0.5] * 32, 0.2]) == pytest.approx(0.2)

    def test_it_follows_when_requests_become_dearer_or_cheaper(self) -> None:
        times = ApiTimes(METADATA)
        self.take(times, [0.2] * 32)
        assert self.take(times, [2.0] * 640) == pytest.approx(2.0, rel=0.05)
        assert self.take(times, [*[0.1] * 640, 2.0]) == pytest.approx(0.1, rel=0.2)

    def test_what_the_proxy_did_meanwhile_is_known(self) -> None:
        times = RequestTimes(lambda: 0, lambda: 0)
        for _ in range(200):
            times.chunk_took(40_000)
        began = times.chunks
        times.chunks += 5
        assert times.meanwhile_ns(began) == pytest.approx(200_000, rel=0.01)


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
