"""What the truth would have been is known here: the same client is run again under the other limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.arrays import Floats
from analysis.kernel.censoring import Answer, Recorded, throttled_bounds_s
from analysis.kernel.demand import curve
from analysis.kernel.outcome import ReplayResult
from tests.analysis.demands import dense, recorded_of, replayed, sent_of
from tests.analysis.workloads import MEAN_BYTES_PER_S, SHAPES, RecordedClient, workloads
from tests.reference.request_level import run

SECONDS = 600


def column(values: list[float]) -> Floats:
    return np.array(values)[:, None]


def test_bytes_of_throttled_episode_move_to_its_start() -> None:
    sent = [5.0, 10.0, 3.0, 3.0, 3.0, 3.0, 2.0, 7.0]
    recorded = recorded_of(column(sent), column([0.0, 0.0, 0.5, 1.0, 0.2, 0.0, 0.0, 0.0]))
    assert sent_of(recorded.low)[:, 0].tolist() == sent
    # 3 + 3 + 3 and the second behind them.
    assert sent_of(recorded.high)[:, 0].tolist() == [5, 10, 12, 0, 0, 0, 2, 7]
    assert recorded.answers.tolist() == [Answer.INTERVAL]
    assert recorded.muted_s.tolist() == pytest.approx([1.7])


def test_an_episode_moves_no_faster_than_the_client_ever_sends() -> None:
    sent = [1.0, *[1.0] * 50, 0.0]
    recorded = recorded_of(column(sent), column([0.0, *[1.0] * 49, 0.0, 0.0]))
    assert sent_of(recorded.high)[:8, 0].tolist() == [1, 10, 10, 10, 10, 10, 0, 0]


@pytest.mark.parametrize(
    ("muted", "answer"),
    [
        ([0, 0, 0, 0], Answer.EXACT),
        ([1, 0, 0, 0], Answer.INTERVAL),
        ([0, 0, 1, 0], Answer.UNKNOWN),
        ([0, 0, 0, 1], Answer.UNKNOWN),
    ],
)
def test_recorded_mutes_decide_between_exact_interval_and_unknown(muted: list[float], answer: Answer) -> None:
    assert recorded_of(column([1, 1, 1, 1]), column(muted)).answers.tolist() == [answer]


def test_series_that_were_held_up_are_bounded_apart() -> None:
    """Two of three series of one unit; each is moved by itself."""
    rng = np.random.default_rng(3)
    sent = np.where(rng.random((400, 4)) < 0.4, rng.gamma(4, 250_000, (400, 4)), 0)
    muted_s = np.zeros_like(sent)
    muted_s[100:150, 0] = 0.5
    muted_s[200:220, 1] = 1.0
    unit_of = [0, 0, 0, 1]
    recorded = recorded_of(sent, muted_s, unit_of)
    apart = sent_of(recorded_of(sent, muted_s).high)
    for demand, expected in ((recorded.low, sent), (recorded.high, apart)):
        assert sent_of(demand) == pytest.approx(np.stack((expected[:, :3].sum(axis=1), expected[:, 3]), axis=1))
    assert recorded.answers.tolist() == [Answer.INTERVAL, Answer.EXACT]
    assert recorded.muted_s == pytest.approx([45, 0])
    assert recorded.only(np.array([1])).answers.tolist() == [Answer.EXACT]


@given(st.integers(0, 2**32), st.integers(1, 80), st.integers(1, 4))
def test_high_bound_sends_same_bytes_earlier_and_no_faster(seed: int, seconds: int, units: int) -> None:
    rng = np.random.default_rng(seed)
    sent = rng.integers(0, 50, (seconds, units)).astype(float)
    muted = rng.random((seconds, units)) * (rng.random((seconds, units)) < 0.4)
    recorded = recorded_of(sent, muted)
    high = dense(recorded.high.cells, seconds, units)
    assert np.allclose(high.sum(axis=0), sent.sum(axis=0))
    assert (curve(high) >= curve(sent) - 1e-6).all()
    assert (high <= recorded.high.peak_bytes_per_s + 1e-6).all()
    apart = ~((muted > 0) | np.concatenate((np.zeros((1, units), dtype=bool), muted[:-1] > 0)))
    assert (high[apart] == sent[apart]).all()


def both(recorded: Recorded, limits: Floats) -> tuple[ReplayResult, ReplayResult]:
    return replayed(recorded.low, limits), replayed(recorded.high, limits)


def test_true_throttle_time_lies_within_the_bounds() -> None:
    seen: set[Answer] = set()
    widths: list[float] = []
    for name, due_bytes in workloads(SECONDS).items():
        due_bytes[-SECONDS // 5 :] *= 0.02  # so that some backlogs end
        for shape in SHAPES[2:3]:
            for recorded in (0.5, 0.9, 1.2, 2.0):
                limit = MEAN_BYTES_PER_S * recorded
                recording = RecordedClient(name, due_bytes, shape, limit, run(due_bytes, shape, limit))
                censored = recording.recorded
                limits = limit * np.array([0.7, 1.0, 1.3, 2.0, 4.0])[:, None]
                low, high = both(censored, limits)
                true_s = np.array([[sum(recording.again(proposed).muted_s)] for proposed in limits[:, 0].tolist()])
                for in_force in (limit, np.nan):
                    least, most = throttled_bounds_s(censored, low, high, limits, np.full((2, 1), in_force))
                    slack_s = 0.02 * SECONDS
                    assert (least - slack_s <= true_s).all()
                    assert (true_s <= most + slack_s).all()
                    if censored.answers[0] == Answer.INTERVAL and in_force == limit:
                        widths += ((most - least) / SECONDS).ravel().tolist()
                seen.add(Answer(censored.answers[0]))
    assert seen == set(Answer)
    assert np.mean(widths) < 0.25


def test_bounds_under_the_recorded_limit_equal_recorded_mutes() -> None:
    recorded = recorded_of(column([90, 90, 10, 0, 0, 0]), column([0.0, 0.3, 0.4, 0.0, 0.0, 0.0]))
    limits = np.array([[10.0]])
    bounds_s = throttled_bounds_s(recorded, *both(recorded, limits), limits, np.full((2, 1), 10.0))
    assert [seconds.tolist() for seconds in bounds_s] == [[[0.7]]] * 2


NOT_KNOWN, CHANGED = np.full((2, 1), np.nan), np.array([[10.0], [20.0]])


def test_limits_outside_the_recorded_range_are_bounded_by_recorded_mutes() -> None:
    """Recorded under 10 and then 20: under more than 20 it is not held longer, under less than 10 not shorter."""
    sent, muted = [90.0, 90, 90, 90, 0, 0, 0, 0, 0, 0], [0.0, 0.3, 0.4, 0.0, 0.0, 0.0, 0, 0, 0, 0]
    recorded = recorded_of(column(sent), column(muted))
    limits = np.array([5.0, 10, 15, 20, 25])[:, None]
    outcomes = both(recorded, limits)
    free, held = (throttled_bounds_s(recorded, *outcomes, limits, in_force) for in_force in (NOT_KNOWN, CHANGED))
    assert (free[1] > 0.7).all(), "it would be held longer, by the demand at most"
    assert held[1][3:, 0].tolist() == pytest.approx([0.7, 0.7])
    assert (held[1][:3] == free[1][:3]).all()
    assert (held[0][:2] >= 0.7).all()
    assert (held[0] >= np.minimum(free[0], held[1])).all()
