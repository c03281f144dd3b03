import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.demand import Demand, surge_bytes
from analysis.kernel.fluid import replay
from analysis.kernel.histogram import BINS, Floats
from analysis.kernel.outcome import Outcome, weighed
from quotas.rate import Window
from quotas.throttle import excess

WINDOW = Window()
W = 11


def one_unit(due_bytes: list[float], limit: float, request: float, peak: float) -> list[float]:
    """The model once more, for one unit and in plain words: what is sent in each second."""
    sent: list[float] = []
    waiting = 0.0
    in_flight = 0.1 * request
    for due in due_bytes:
        waiting += due
        before_s = excess(sum(sent[-10:]) / W, limit, W)
        # s X(s) + s c / P = c by bisection: the left side rises with s.
        low, high = 0.0, peak
        for _ in range(200):
            middle = (low + high) / 2
            if middle * (before_s + middle / limit + in_flight / peak) <= in_flight:
                low = middle
            else:
                high = middle
        sent.append(min(low, waiting))
        waiting -= sent[-1]
    return sent


@st.composite
def demands(draw: st.DrawFn, *, units: int = 3) -> Demand:
    # The numbers come of a seed: drawn one by one they cost a hundred times as much as what is tested.
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (draw(st.integers(1, 150)), units)
    scale = draw(st.sampled_from([100, 3_000, 50_000]))
    sent = np.where(rng.random(shape) < draw(st.sampled_from([0.02, 0.3, 1.0])), rng.integers(1, scale, shape), 0)
    requests = np.ceil(sent / draw(st.sampled_from([100, 3_000, 50_000])))
    return Demand.recorded(sent, requests)


limits = st.lists(st.floats(50, 50_000), min_size=3, max_size=3).map(np.array)


def series_of(outcome: Outcome) -> tuple[Floats, Floats]:
    assert outcome.series is not None
    return outcome.series.sent_bytes, outcome.series.waiting_bytes


@given(demands(), limits)
def test_each_unit_is_what_it_would_be_alone_and_in_plain_words(demand: Demand, limit: Floats) -> None:
    sent, _ = series_of(replay(demand, limit, series=True))
    for unit in range(3):
        shape = (demand.request_bytes[unit], demand.peak_bytes_per_s[unit])
        plain = one_unit(demand.sent_bytes[:, unit].tolist(), float(limit[unit]), *map(float, shape))
        assert np.allclose(np.cumsum(sent[:, 0, unit]), np.cumsum(plain), rtol=1e-6, atol=1)


@given(demands(), limits)
def test_no_byte_is_lost_or_made(demand: Demand, limit: Floats) -> None:
    outcome = replay(demand, limit, series=True)
    sent, waiting = series_of(outcome)
    accounted = outcome.sent_bytes + outcome.waiting_bytes
    assert np.allclose(accounted, outcome.demand_bytes, rtol=1e-9, atol=1e-3)
    assert np.allclose(sent.sum(axis=0), outcome.sent_bytes, rtol=1e-9, atol=1e-3)
    assert np.allclose(outcome.throttles.sum(axis=-1), outcome.sent_bytes, rtol=1e-9, atol=1e-3)
    # Each byte has waited or will have: none is weighed twice. (Backlogs below one byte are not weighed at all.)
    assert np.allclose(outcome.delays.sum(axis=-1), outcome.demand_bytes, rtol=1e-6, atol=2 * demand.sent_bytes.size)
    assert (sent >= -1e-6).all()
    assert (waiting >= -1e-6).all()


def test_bytes_that_waited_for_less_than_a_bin_are_weighed_once() -> None:
    counted = np.zeros((1, BINS))
    counted[0, [0, 5]] = 3.0, 2.0
    first = np.array([0])
    histograms = weighed(np.array([[10.0]]), (first, first), counted, np.array([10.0]))
    assert histograms[0, 0, [0, 5]].tolist() == [8.0, 2.0]


@given(demands(), limits)
def test_nobody_sends_faster_than_one_request_in_each_throttle_time(demand: Demand, limit: Floats) -> None:
    sent, _ = series_of(replay(demand, limit, series=True))
    sums = np.concatenate((np.zeros((W, *sent.shape[1:])), np.cumsum(sent, axis=0)))
    muted_s = np.maximum(excess((sums[W:] - sums[:-W]) / W, limit, W), 0)
    others = demand.in_flight_bytes
    assert (sent * (muted_s + others / demand.peak_bytes_per_s) <= others * (1 + 1e-6) + 1e-3).all()


@given(demands())
def test_without_a_limit_all_passes_as_it_came(demand: Demand) -> None:
    for unlimited in (math.inf, math.nan, 2.0**63, 1e18):
        outcome = replay(demand, np.full(3, unlimited), series=True)
        assert (series_of(outcome)[0][:, 0] == demand.sent_bytes).all()
        assert not outcome.ever_throttled.any()
        assert (outcome.delay_s(1.0) == 0).all()
        assert (outcome.throttle_s(1.0) == 0).all()


@given(demands(), limits)
def test_throttled_is_who_is_over_the_limit_in_the_open_loop(demand: Demand, limit: Floats) -> None:
    surge = surge_bytes(demand.sent_bytes, W)
    plain = [
        one_unit(demand.sent_bytes[:, unit].tolist(), float(limit[unit]), 1e-3, 1e6)
        != demand.sent_bytes[:, unit].tolist()
        for unit in range(3)
    ]
    over = surge > W * limit
    ever = replay(demand, limit).ever_throttled[0]
    clear = np.abs(surge / (W * limit) - 1) > 1e-6
    assert (ever == over)[clear].all()
    assert (np.array(plain) >= over)[clear].all()


@given(demands(), limits)
def test_a_higher_limit_throttles_less(demand: Demand, limit: Floats) -> None:
    ladder = limit * 1.5 ** np.arange(8)[:, None]
    outcome = replay(demand, ladder)
    slack_bytes = 0.02 * outcome.demand_bytes[0] + 10
    assert (np.diff(outcome.sent_bytes, axis=0) >= -slack_bytes).all()
    assert (np.diff(outcome.peak_waiting_bytes, axis=0) <= slack_bytes).all()
    assert (outcome.ever_throttled[1:] <= outcome.ever_throttled[:-1]).all()


@given(demands(), limits)
def test_scenarios_do_not_know_each_other(demand: Demand, limit: Floats) -> None:
    together = replay(demand, np.stack((limit, limit / 3, limit * 10)))
    for number, factor in enumerate((1, 1 / 3, 10)):
        alone = replay(demand, limit * factor)
        assert np.allclose(together.sent_bytes[number], alone.sent_bytes[0])
        assert (together.throttled_s[number] == alone.throttled_s[0]).all()
        assert np.allclose(together.delays[number], alone.delays[0])


@given(demands(), limits, st.data())
def test_a_period_in_two_parts(demand: Demand, limit: Floats, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(demand.sent_bytes)))
    parts = [
        Demand(sent, demand.request_bytes, demand.peak_bytes_per_s)
        for sent in (demand.sent_bytes[:cut], demand.sent_bytes[cut:])
    ]
    whole = replay(demand, limit)
    first = replay(parts[0], limit, more=True)
    both = first.then(replay(parts[1], limit, before=first.carry))
    assert both.seconds == whole.seconds
    for name in ("demand_bytes", "sent_bytes", "waiting_bytes", "peak_waiting_bytes"):
        assert np.allclose(getattr(both, name), getattr(whole, name), rtol=1e-6, atol=1), name
    assert np.abs(both.active_s - whole.active_s).max() <= 1
    assert np.abs(both.throttled_s - whole.throttled_s).max() <= 1
    assert np.abs(both.episodes - whole.episodes).max() <= 1
    assert np.allclose(
        both.delays.cumsum(axis=-1)[..., ::16], whole.delays.cumsum(axis=-1)[..., ::16], rtol=0.05, atol=500
    )


def burst() -> Outcome:
    """2,000 bytes at once, then nothing, in requests of one byte on one connection."""
    sent = np.zeros((40, 1))
    sent[0] = 2000
    demand = Demand(sent, np.ones(1), np.full(1, 20_000.0))
    return replay(demand, [100.0], series=True)


def test_a_burst_by_hand() -> None:
    """Eleven seconds' worth passes at once; the rest when the window has forgotten it, eleven seconds later."""
    outcome = burst()
    sent, waiting = series_of(outcome)
    assert sent[0, 0, 0] == pytest.approx(1100, abs=1)
    assert waiting[0, 0, 0] == pytest.approx(900, abs=1)
    assert waiting[10, 0, 0] == pytest.approx(900, abs=20)  # what a request of one byte leaks
    assert sent[11:, 0, 0].sum() == waiting[10, 0, 0]
    assert outcome.throttled_s[0, 0] == 11
    assert outcome.episodes[0, 0] == 1
    assert outcome.active_s[0, 0] == 12
    assert outcome.throttled_share[0, 0] == pytest.approx(11 / 12)
    assert outcome.peak_waiting_bytes[0, 0] == waiting[0, 0, 0]
    assert outcome.delay_s(0.5)[0, 0] == 0
    assert outcome.delay_s(0.9)[0, 0] == pytest.approx(11.5 - 0.78, rel=0.05)
    assert outcome.waiting_bytes[0, 0] == 0


def test_what_waits_at_the_end_leaves_at_the_rate_of_the_limit() -> None:
    demand = Demand.recorded(np.full((60, 1), 1000.0), np.full((60, 1), 100.0))
    outcome = replay(demand, [500.0])
    # 5,500 bytes pass in each eleven seconds, and what the last five of the minute allow.
    assert outcome.waiting_bytes[0, 0] == pytest.approx(60_000 - 5 * 5_500 - 5_000, abs=100)
    assert outcome.delay_s(1.0)[0, 0] == pytest.approx(55, rel=0.05)
    assert replay(demand, [500.0], more=True).delay_s(1.0)[0, 0] < 30


def test_no_units_and_no_time() -> None:
    nothing = Demand.recorded(np.zeros((0, 2)), np.zeros((0, 2)))
    assert replay(nothing, [1.0, 2.0]).throttled_share.tolist() == [[0.0, 0.0]]
    nobody = Demand.recorded(np.zeros((9, 0)), np.zeros((9, 0)))
    assert replay(nobody, np.zeros((3, 0))).sent_bytes.shape == (3, 0)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [([1.0], "with 2 units"), ([[[1.0, 2.0]]], "with 2 units"), ([1.0, 0.0], "above 0"), ([1.0, -5.0], "above 0")],
)
def test_limits_that_do_not_fit(limits: list[float], problem: str) -> None:
    demand = Demand.recorded(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match=problem):
        replay(demand, limits)


def test_a_window_below_a_second_is_refused() -> None:
    demand = Demand.recorded(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="a window of 500 ms is too short"):
        replay(demand, [1.0, 1.0], Window(5, 100))
