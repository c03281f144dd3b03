import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.arrays import Floats
from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.censoring import Recorded
from analysis.kernel.demand import Demand
from quotas.rate import Window
from quotas.throttle import excess
from tests.analysis.demands import course, demand_of, replayed, sent_of

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
    shape = (draw(st.integers(1, 200)), units)
    scale = draw(st.sampled_from([100, 3_000, 50_000]))
    sent = np.where(rng.random(shape) < draw(st.sampled_from([0.02, 0.3, 1.0])), rng.integers(1, scale, shape), 0)
    requests = np.ceil(sent / draw(st.sampled_from([100, 3_000, 50_000])))
    return demand_of(sent, requests)


limits = st.lists(st.floats(50, 50_000), min_size=3, max_size=3).map(np.array)


@given(demands(), limits)
def test_replayed_unit_equals_a_plain_replay_of_it_alone(demand: Demand, limit: Floats) -> None:
    sent = course(demand, limit).sent_bytes
    for unit in range(3):
        shape = (demand.request_bytes[unit], demand.peak_bytes_per_s[unit])
        plain = one_unit(sent_of(demand)[:, unit].tolist(), float(limit[unit]), *map(float, shape))
        assert np.allclose(np.cumsum(sent[:, 0, unit]), np.cumsum(plain), rtol=1e-6, atol=1)


@given(demands(), limits)
def test_no_byte_is_lost_or_made(demand: Demand, limit: Floats) -> None:
    outcome, seen = replayed(demand, limit), course(demand, limit)
    assert np.allclose(outcome.sent_bytes + outcome.waiting_bytes, demand.total_bytes, rtol=1e-9, atol=1e-3)
    assert np.allclose(seen.sent_bytes.sum(axis=0), outcome.sent_bytes, rtol=1e-9, atol=2)
    assert np.allclose(outcome.throttles.sum(axis=-1), outcome.sent_bytes, rtol=1e-9, atol=1e-3)
    # Each byte has waited or will have: none is weighed twice. (Backlogs below one byte are not weighed at all.)
    assert np.allclose(outcome.delays.sum(axis=-1), demand.total_bytes, rtol=1e-6, atol=2 * demand.seconds)
    assert (seen.sent_bytes >= -1e-6).all()
    assert (seen.waiting_bytes >= -1e-6).all()


@given(demands(), limits)
def test_replayed_client_sends_one_request_per_throttle_time(demand: Demand, limit: Floats) -> None:
    sent = course(demand, limit).sent_bytes
    sums = np.concatenate((np.zeros((W, *sent.shape[1:])), np.cumsum(sent, axis=0)))
    muted_s = np.maximum(excess((sums[W:] - sums[:-W]) / W, limit, W), 0)
    others = demand.in_flight_bytes
    assert (sent * (muted_s + others / demand.peak_bytes_per_s) <= others * (1 + 1e-6) + 1e-3).all()


@given(demands())
def test_replay_without_a_limit_sends_everything_unchanged(demand: Demand) -> None:
    for unlimited in (math.inf, 2.0**63, 1e18):
        outcome = replayed(demand, np.full(3, unlimited))
        assert (course(demand, np.full(3, unlimited)).sent_bytes[:, 0] == sent_of(demand)).all()
        assert not outcome.ever_throttled.any()
        assert (outcome.delay_s(1.0) == 0).all()
        assert (outcome.throttle_s(1.0) == 0).all()


@given(demands(), limits)
def test_client_is_throttled_exactly_when_demand_exceeds_the_limit(demand: Demand, limit: Floats) -> None:
    surge = demand.cells.surge_bytes(3, W)
    plain = [
        one_unit(sent_of(demand)[:, unit].tolist(), float(limit[unit]), 1e-3, 1e6) != sent_of(demand)[:, unit].tolist()
        for unit in range(3)
    ]
    over = surge > W * limit
    ever = replayed(demand, limit).ever_throttled[0]
    clear = np.abs(surge / (W * limit) - 1) > 1e-6
    assert (ever == over)[clear].all()
    assert (np.array(plain) >= over)[clear].all()


@given(demands(), limits)
def test_a_higher_limit_throttles_less(demand: Demand, limit: Floats) -> None:
    ladder = limit * 1.5 ** np.arange(8)[:, None]
    outcome = replayed(demand, ladder)
    slack_bytes = 0.02 * demand.total_bytes + 10
    assert (np.diff(outcome.sent_bytes, axis=0) >= -slack_bytes).all()
    assert (np.diff(outcome.peak_waiting_bytes, axis=0) <= slack_bytes).all()
    assert (outcome.ever_throttled[1:] <= outcome.ever_throttled[:-1]).all()


@given(demands(), limits)
def test_scenarios_do_not_know_each_other(demand: Demand, limit: Floats) -> None:
    together = replayed(demand, np.stack((limit, limit / 3, limit * 10)))
    for number, factor in enumerate((1, 1 / 3, 10)):
        alone = replayed(demand, limit * factor)
        assert np.allclose(together.sent_bytes[number], alone.sent_bytes[0])
        assert (together.throttled_s[number] == alone.throttled_s[0]).all()
        assert np.allclose(together.delays[number], alone.delays[0])


def burst() -> Demand:
    """2,000 bytes at once, then nothing, in requests of one byte on one connection."""
    sent = np.zeros((40, 1))
    sent[0] = 2000
    return demand_of(sent, np.where(sent > 0, 2000, 0))


def test_burst_over_the_window_waits_until_the_window_passed() -> None:
    """Eleven seconds' worth passes at once; the rest when the window has forgotten it, eleven seconds later."""
    outcome = replayed(burst(), [100.0])
    sent, waiting, _, _ = course(burst(), [100.0])
    assert sent[0, 0, 0] == pytest.approx(1100, abs=1)
    assert waiting[0, 0, 0] == pytest.approx(900, abs=1)
    assert waiting[10, 0, 0] == pytest.approx(900, abs=20)  # what a request of one byte leaks
    assert sent[11:, 0, 0].sum() == waiting[10, 0, 0]
    assert outcome.throttled_s[0, 0] == 11
    assert outcome.episodes[0, 0] == 1
    assert outcome.active_s[0, 0] == 12
    assert outcome.peak_waiting_bytes[0, 0] == waiting[0, 0, 0]
    assert outcome.delay_s(0.5)[0, 0] == 0
    assert outcome.delay_s(0.9)[0, 0] == pytest.approx(11.5 - 0.78, rel=0.05)
    assert outcome.waiting_bytes[0, 0] == 0


def test_backlog_at_the_end_drains_at_the_limit() -> None:
    demand = demand_of(np.full((60, 1), 1000.0), np.full((60, 1), 100.0))
    outcome = replayed(demand, [500.0])
    # 5,500 bytes pass in each eleven seconds, and what the last five of the minute allow.
    assert outcome.waiting_bytes[0, 0] == pytest.approx(60_000 - 5 * 5_500 - 5_000, abs=100)
    assert outcome.delay_s(1.0)[0, 0] == pytest.approx(55, rel=0.05)
    assert max(course(demand, [500.0]).delays)[0] < 30


def test_replay_of_no_units_or_no_use_is_empty() -> None:
    nothing = demand_of(np.zeros((9, 2)), np.zeros((9, 2)))
    assert replayed(nothing, [1.0, 2.0]).active_s.tolist() == [[0.0, 0.0]]
    nobody = demand_of(np.zeros((9, 0)), np.zeros((9, 0)))
    assert replayed(nobody, np.zeros((3, 0))).sent_bytes.shape == (3, 0)


def test_a_window_below_a_second_is_refused() -> None:
    demand = demand_of(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="a window of 500 ms is too short"):
        replayed(demand, [1.0, 1.0], Window(5, 100))


def test_throttle_time_is_cut_at_the_end_of_the_replay() -> None:
    """One request as large as 40 windows: it is held long after the window has forgotten all."""
    sent = np.zeros((300, 1))
    sent[5], sent[200] = 4e6, 1.0
    outcome = replayed(demand_of(sent, np.minimum(sent, 1)), [10_000.0])
    assert outcome.throttled_most_s[0, 0] > outcome.throttled_s[0, 0]
    assert outcome.throttled_most_s[0, 0] <= 295


def test_years_in_which_nothing_was_sent_take_no_time() -> None:
    """Also between two throttles: neither the replay nor the demand at most goes through them second by second."""
    seconds = 10**9
    second = np.concatenate((np.arange(20), np.arange(20) + seconds - 20))
    found = SeriesRows(
        np.zeros(40, dtype=np.intp), second * 1000, np.full(40, 1000), np.full(40, 3e6), np.full(40, 500.0)
    )
    recorded = Recorded.of(Cells.of(found), np.zeros(1, dtype=np.intp), np.full(1, 400.0), seconds)
    for demand in (recorded.low, recorded.high):
        outcome = replayed(demand, [[1e6]])
        assert outcome.throttled_s[0, 0] > 0
        assert (outcome.sent_bytes + outcome.waiting_bytes)[0, 0] == pytest.approx(120e6)
