"""A broker's first throttle, read backwards, is what its requests have cost."""

import pytest

from config.quotas import Window
from config.settings import RequestCosts as Prices
from protocol.probes import all_metadata, fetch_nothing
from proxy.calibrate.calibration import BURST_SHARE, LEAST, MOST, Calibration, Kind, cost_us, factor, table_us
from quotas.rate import Rate
from quotas.rate import Window as Samples

WINDOW = Window()


def kind(*measured_us: float) -> Kind:
    return Kind("Fetch", 40.0, measured_us)


@pytest.mark.parametrize("us", [12.0, 26.0, 750.0])
@pytest.mark.parametrize("pace_us", [60, 150, 900])
def test_request_cost_is_recovered_from_first_throttle_of_broker(us: float, pace_us: int) -> None:
    rate = Rate(Samples(), 0.4, cap_ms=1000)
    requests = throttle_ms = 0
    while not throttle_ms:
        requests += 1
        now_ms = requests * max(pace_us, us) / 1000
        throttle_ms = rate.charge(us * 1e-4, int(now_ms))
    found = cost_us(0.4, WINDOW, now_ms, throttle_ms, requests)
    assert found is None or found == pytest.approx(us, rel=0.03)
    assert found is not None or throttle_ms == 1000 or now_ms % 1000 < 20 or now_ms % 1000 > 980 or now_ms >= 10_000


@pytest.mark.parametrize(
    ("took_ms", "throttle_ms"), [(200, 1000), (990, 20), (1010, 20), (12_000, 20)], ids=["most", "end", "begin", "long"]
)
def test_ambiguous_throttle_measurements_give_no_cost(took_ms: float, throttle_ms: int) -> None:
    assert cost_us(0.4, WINDOW, took_ms, throttle_ms, 100) is None


def test_the_factor_is_the_median_and_neither_very_small_nor_very_large() -> None:
    assert factor([BURST_SHARE * each for each in (0.1, 0.9, 1.0, 1.2, 40.0)]) == pytest.approx(1.0)
    assert factor([0.01]) == LEAST
    assert factor([100.0]) == MOST


def test_calibration_prints_cost_scale_and_spread_warning() -> None:
    quiet = Calibration(3, (kind(24.0, 25.0, 26.0),), ())
    assert [*quiet.lines()] == [
        "Fetch: 25 µs in bursts (24 to 26), 40 µs in the table",
        "broker 3: request_costs.scale: 0.92 (spread 1.1)",
    ]
    busy = Calibration(3, (kind(24.0, 25.0, 260.0),), ("sluice-calibrate-old",))
    told = [*busy.lines()]
    assert told[0] == "removed what an earlier calibration had left: sluice-calibrate-old"
    assert told[2].startswith("warning: bursts of one kind differ by a factor of 10.8.")


def test_cost_table_ignores_scale_for_calibration_requests() -> None:
    for scale in (1.0, 3.0):
        prices = Prices(scale=scale)
        assert table_us(all_metadata(), 4096, prices) == pytest.approx(35 + 100)
        assert 41 <= table_us(fetch_nothing("sluice-calibrate-x"), 0, prices) <= 45
