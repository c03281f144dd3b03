import pytest

from proxy.usage.lately import SAMPLE_MS
from proxy.usage.meter import Meter, MeterKey
from quotas.kinds import QuotaKind

PRODUCE, REQUESTS = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE
MINUTE_MS = 60_000


def meter() -> Meter:
    return Meter(MeterKey("PLAIN", 1, "alice", "app"))


def pass_samples(of: Meter, number: int, now_ms: int) -> int:
    """Return the time after so many samples."""
    for _ in range(number):
        now_ms += SAMPLE_MS
        of.sample(SAMPLE_MS / 1000, now_ms)
    return now_ms


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    counted = meter()
    assert counted.rates(1000) == (0.0, 0.0)
    counted.other_bytes, counted.bytes_out = 1000, 20_000
    assert counted.rates(1000) == (100.0, 2000.0)
    counted.sample(10.0, SAMPLE_MS)
    assert counted.rates(0) == (100.0, 2000.0)
    assert counted.rates(5000) == (50.0, 1000.0)
    counted.take(SAMPLE_MS + 5000)  # a usage record in between
    counted.other_bytes += 500
    assert counted.rates(5000) == (100.0, 1000.0)
    assert counted.rates(20_000) == (25.0, 0.0)  # the next sample is late
    counted.sample(20.0, 3 * SAMPLE_MS)
    assert counted.rates(0) == (25.0, 0.0)


def test_throttled_share_covers_the_last_minute() -> None:
    throttled = meter()
    assert throttled.throttled_share(0) == 0
    throttled.count_throttle(PRODUCE, 30_000, 0)
    assert throttled.throttled_share(6000) == pytest.approx(6 / 60)
    now_ms = pass_samples(throttled, 6, 0)
    assert throttled.throttled_share(now_ms) == pytest.approx(30 / 60)
    now_ms = pass_samples(throttled, 2, now_ms)
    assert throttled.throttled_share(now_ms) == pytest.approx(10 / 60)
    now_ms = pass_samples(throttled, 1, now_ms)
    assert throttled.throttled_share(now_ms) == 0
    assert throttled.lately is not None
    assert throttled.lately.throttles is None


def test_mutes_of_several_kinds_at_once_count_once() -> None:
    throttled = meter()
    throttled.count_throttle(PRODUCE, 30_000, 0)
    throttled.count_wait(REQUESTS, 1, 10_000)
    throttled.count_wait(REQUESTS, -1, 60_000, 50_000)
    assert throttled.throttled_share(60_000) == 1


def test_client_waiting_throughout_has_throttled_share_of_one() -> None:
    throttled = meter()
    throttled.count_wait(PRODUCE, 1, 0)
    now_ms = pass_samples(throttled, 200, 0)
    assert throttled.throttled_share(now_ms) == 1
    throttled.count_wait(PRODUCE, -1, now_ms, now_ms)
    assert throttled.throttled_share(pass_samples(throttled, 7, now_ms)) == 0


def test_a_client_without_traffic_has_no_samples() -> None:
    idle = meter()
    pass_samples(idle, 3, 0)
    assert idle.lately is None


def test_client_is_throttled_now_for_two_seconds_also_when_a_record_is_taken() -> None:
    throttled = meter()
    throttled.count_throttle(PRODUCE, 100, 0)
    throttled.take(500)
    assert throttled.is_throttled(2099)
    assert not throttled.is_throttled(2100)
