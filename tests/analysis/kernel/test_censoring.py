"""What the truth would have been is known here: the same client is run again under the other limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.censoring import Answer, bounds, throttled_bounds_s
from analysis.kernel.demand import Demand, curve
from analysis.kernel.fluid import replay
from tests.analysis.workloads import MEAN_BYTES_PER_S, SHAPES, RecordedClient, workloads
from tests.reference.request_level import run

SECONDS = 600


def demand_of(sent: list[float]) -> Demand:
    column = np.array(sent, dtype=float)[:, None]
    return Demand(column, np.ones(1), np.full(1, max(*sent, 1.0)))


def test_an_episode_moves_to_its_start() -> None:
    sent = [5.0, 10.0, 3.0, 3.0, 3.0, 3.0, 2.0, 7.0]
    muted = [0.0, 0.0, 0.5, 1.0, 0.2, 0.0, 0.0, 0.0]
    censored = bounds(demand_of(sent), np.array(muted)[:, None])
    assert censored.low.sent_bytes[:, 0].tolist() == sent
    # 3 + 3 + 3 and the second behind them, at most 10 a second.
    assert censored.high.sent_bytes[:, 0].tolist() == [5, 10, 10, 2, 0, 0, 2, 7]
    assert censored.answers == (Answer.INTERVAL,)
    assert censored.muted_s.tolist() == pytest.approx([1.7])


@pytest.mark.parametrize(
    ("muted", "answer"),
    [
        ([0, 0, 0, 0], Answer.EXACT),
        ([1, 0, 0, 0], Answer.INTERVAL),
        ([0, 0, 1, 0], Answer.UNKNOWN),
        ([0, 0, 0, 1], Answer.UNKNOWN),
    ],
)
def test_what_a_recording_can_tell(muted: list[float], answer: Answer) -> None:
    assert bounds(demand_of([1, 1, 1, 1]), np.array(muted, dtype=float)[:, None]).answers == (answer,)


def test_nothing_recorded() -> None:
    nothing = Demand.recorded(np.zeros((0, 1)), np.zeros((0, 1)))
    assert bounds(nothing, np.zeros((0, 1))).answers == (Answer.EXACT,)


def test_shapes_that_differ() -> None:
    with pytest.raises(ValueError, match=r"must be \(2, 1\), not \(1, 2\)"):
        bounds(demand_of([1, 1]), [[0, 0]])


@given(st.integers(0, 2**32), st.integers(1, 80), st.integers(1, 4))
def test_high_has_the_same_bytes_earlier_and_no_faster(seed: int, seconds: int, units: int) -> None:
    rng = np.random.default_rng(seed)
    sent = rng.integers(0, 50, (seconds, units)).astype(float)
    muted = rng.random((seconds, units)) * (rng.random((seconds, units)) < 0.4)
    demand = Demand(sent, np.ones(units), np.maximum(sent.max(axis=0), 1))
    high = bounds(demand, muted).high.sent_bytes
    assert np.allclose(high.sum(axis=0), sent.sum(axis=0))
    assert (curve(high) >= curve(sent) - 1e-6).all()
    assert (high <= demand.peak_bytes_per_s + 1e-6).all()
    apart = ~((muted > 0) | np.concatenate((np.zeros((1, units), dtype=bool), muted[:-1] > 0)))
    assert (high[apart] == sent[apart]).all()


def test_the_truth_lies_within_what_is_shown() -> None:
    seen: set[Answer] = set()
    widths: list[float] = []
    for name, due_bytes in workloads(SECONDS).items():
        due_bytes[-SECONDS // 5 :] *= 0.02  # so that some backlogs end
        for shape in SHAPES[2:3]:
            for recorded in (0.5, 0.9, 1.2, 2.0):
                limit = MEAN_BYTES_PER_S * recorded
                recording = RecordedClient(name, due_bytes, shape, limit, run(due_bytes, shape, limit))
                censored = bounds(recording.demand, recording.muted_s)
                limits = limit * np.array([0.7, 1.0, 1.3, 2.0, 4.0])[:, None]
                low, high = (replay(demand, limits) for demand in (censored.low, censored.high))
                true_s = np.array([[sum(recording.again(proposed).muted_s)] for proposed in limits[:, 0].tolist()])
                for in_force in (limit, np.nan):
                    least, most = throttled_bounds_s(censored, low, high, limits, [[in_force]] * 2)
                    slack_s = 0.02 * SECONDS
                    assert (least - slack_s <= true_s).all()
                    assert (true_s <= most + slack_s).all()
                    if censored.answers[0] is Answer.INTERVAL and in_force == limit:
                        widths += ((most - least) / SECONDS).ravel().tolist()
                seen.add(censored.answers[0])
    assert seen == set(Answer)
    assert np.mean(widths) < 0.25


def test_what_was_in_force_is_what_was_seen() -> None:
    muted = np.array([0.0, 0.3, 0.4, 0.0, 0.0, 0.0])[:, None]
    censored = bounds(demand_of([90, 90, 10, 0, 0, 0]), muted)
    low, high = replay(censored.low, [10.0]), replay(censored.high, [10.0])
    assert [seconds.tolist() for seconds in throttled_bounds_s(censored, low, high, [10.0], [[10.0]] * 2)] == [
        [[0.7]]
    ] * 2


NOT_KNOWN, CHANGED = [[np.nan], [np.nan]], [[10.0], [20.0]]


def test_beyond_every_limit_that_was_in_force_is_known_what_was_seen() -> None:
    """Recorded under 10 and then 20: under more than 20 it is not held longer, under less than 10 not shorter."""
    sent, muted = [90.0, 90, 90, 90, 0, 0, 0, 0, 0, 0], [0.0, 0.3, 0.4, 0.0, 0.0, 0.0, 0, 0, 0, 0]
    censored = bounds(demand_of(sent), np.array(muted)[:, None])
    limits = np.array([5.0, 10, 15, 20, 25])[:, None]
    low, high = replay(censored.low, limits), replay(censored.high, limits)
    free, held = (throttled_bounds_s(censored, low, high, limits, in_force) for in_force in (NOT_KNOWN, CHANGED))
    assert (free[1] > 0.7).all(), "it would be held longer, by the demand at most"
    assert held[1][3:, 0].tolist() == pytest.approx([0.7, 0.7])
    assert (held[1][:3] == free[1][:3]).all()
    assert (held[0][:2] >= 0.7).all()
    assert (held[0] >= np.minimum(free[0], held[1])).all()
