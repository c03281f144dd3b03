from collections.abc import Callable

import pytest

from quotas.rate import Window
from tests.harness.measure import MEASURED_WINDOWS, SAMPLE_S, SHORT_SAMPLES, WINDOW_S, Series
from tests.reference.request_level import Counter

LIMIT = 200_000
REQUEST_BYTES = 16_384


def bursts(count: int, burst_bytes: int = 11_000_000) -> Series:
    """A burst at the begin of each window, and samples every half second."""
    samples = [(100.0, 0.0)]
    for half in range(1, int(count * WINDOW_S * 2)):
        at_s = half / 2
        samples.append((100.0 + at_s, burst_bytes * (1 + int(at_s - 0.5) // int(WINDOW_S))))
    return Series(samples)


def test_steady_rate_counts_whole_windows() -> None:
    series = bursts(5)
    assert series.start_s() == 100.5
    assert series.steady_rate() == pytest.approx(1_000_000)


def paced(speed: Callable[[float], float], window: Window, duration_s: float, limit: float = LIMIT) -> Series:
    """Small requests under a limit by Kafka's own law, of a client that can send at some speed at each moment."""
    counter = Counter(limit, window)
    now_s = total = next_s = 0.0
    series = Series([(-1.0, 0.0)])
    while now_s < duration_s:
        now_s = max(now_s + REQUEST_BYTES / speed(now_s), counter.over_s)
        while next_s < now_s:
            series.append(next_s, total)
            next_s += SAMPLE_S
        counter.charge(REQUEST_BYTES, now_s)
        total += REQUEST_BYTES
    return series


@pytest.mark.parametrize("window", [Window(), Window(6, 500), Window(SHORT_SAMPLES)], ids=["default", "fine", "short"])
@pytest.mark.parametrize("fast", [400_000, 2_000_000, 20_000_000])
@pytest.mark.parametrize("slow", [30_000, 100_000, 250_000])
@pytest.mark.parametrize("slow_windows", [0.0, 0.3, 0.8])
def test_steady_rate_does_not_depend_on_how_a_client_begins(
    window: Window, fast: int, slow: int, slow_windows: float
) -> None:
    window_s = window.keep_ms / 1000
    period_s = window_s + window.size_ms / 1000
    series = paced(lambda now_s: slow if now_s < slow_windows * window_s else fast, window, 6 * window_s)
    for phase in (0.0, 0.3, 0.6, 0.9):
        begin_s = (1 + phase) * window_s
        assert series.rate_by_bursts(begin_s, begin_s + 4 * window_s, period_s) == pytest.approx(LIMIT, rel=0.025)


def test_steady_rate_shows_a_four_percent_overshoot() -> None:
    leaking = paced(lambda _: 2_000_000, Window(), 60.0, 1.04 * LIMIT)
    assert leaking.steady_rate() == pytest.approx(1.04 * LIMIT, rel=0.01)


def test_steady_rate_wants_all_its_windows() -> None:
    with pytest.raises(ValueError, match=r"the series ends .* before its last window"):
        bursts(MEASURED_WINDOWS).steady_rate()


@pytest.mark.parametrize(("windows", "is_measured"), [(MEASURED_WINDOWS, False), (MEASURED_WINDOWS + 2, True)])
def test_series_that_grows_knows_when_it_is_long_enough(windows: int, is_measured: bool) -> None:
    assert bursts(windows).has_steady_rate() is is_measured


def test_series_without_bytes_has_no_rate_yet() -> None:
    assert not Series().has_steady_rate()
    assert not Series([(1.0, 10), (100.0, 10)]).has_steady_rate()


def test_bytes_at_is_the_last_total_known() -> None:
    series = Series([(1.0, 10), (2.0, 30)])
    assert [series.bytes_at(at_s) for at_s in (0.5, 1.0, 1.9, 2.0, 9.0)] == [0, 10, 10, 30, 30]
    assert series.rate(1.0, 2.0) == 20


@pytest.mark.parametrize("from_s", [111.0, 114.0, 117.0, 120.0])
def test_trend_does_not_depend_on_where_bursts_begin(from_s: float) -> None:
    assert bursts(8).trend(from_s, from_s + 5 * WINDOW_S) == pytest.approx(1_000_000, rel=0.05)
    assert Series([(0.0, 0.0), (1.0, 10.0)]).trend(2.0, 3.0) == 0
