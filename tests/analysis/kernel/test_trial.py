"""What is cut short says what the whole replay says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.demand import surge_bytes
from analysis.kernel.fluid import SLAB_S
from analysis.kernel.histogram import Floats
from analysis.kernel.search import enough, least_that, smallest, surge_window_s
from analysis.kernel.stretch import stretch
from analysis.kernel.target import Target, parse_target
from analysis.kernel.trial import Trial
from quotas.rate import Window
from tests.analysis.kernel.test_series import demand_of, recorded_of
from tests.harness.examples import examples

TARGETS = (
    "p99 throttle < 100 ms",
    "p90 throttle < 3 s",
    "max throttle < 2 s",
    "p95 delay < 2 s",
    "p50 delay < 20 s",
    "max delay < 1 m",
    "throttled share < 0.1 %",
    "throttled share < 30 %",
)
WINDOWS = (Window(), Window(5, 700), Window(2, 1000), Window(40, 2000))


def demanded(seed: int, seconds: int, units: int = 4) -> Floats:
    """Steady use, bursts, long silences, and somebody who does nothing."""
    rng = np.random.default_rng(seed)
    busy = rng.random((seconds // 40 + 1, units)).repeat(40, axis=0)[:seconds] < rng.random(units)
    sent = np.where(busy, rng.gamma(0.5, 1e5, (seconds, units)), 0).round()
    sent[:, rng.random(units) < 0.2] = 0
    sent[seconds // 2 :, rng.random(units) < 0.3] = 0
    return sent


def agreed(sent: Floats, target: Target, window: Window, tried: Floats) -> None:
    """The highest quota that fails is the same; of those below a trial says nothing else."""
    recorded = recorded_of(sent)
    units = np.flatnonzero(sent.any(axis=0))
    if not len(units):
        return
    tried = tried * np.maximum(sent.mean(axis=0), 1)[units]
    whole = target.met(stretch(recorded, units).replay(tried, window, high=True), window)
    from_there_on = np.logical_and.accumulate(whole[::-1])[::-1]
    trial = Trial(recorded, units, target, window)
    assert trial.met(tried, np.arange(len(units))).tolist() == from_there_on.tolist()
    some = np.arange(len(units))[::2]
    assert trial.met(tried[:, some], some).tolist() == from_there_on[:, some].tolist(), "others change nothing"


@examples(4)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 11, SLAB_S - 1, SLAB_S, SLAB_S + 1, 5 * SLAB_S + 7]),
    st.sampled_from(TARGETS),
    st.sampled_from(WINDOWS),
)
def test_it_says_what_the_whole_replay_says(seed: int, seconds: int, target: str, window: Window) -> None:
    scales = np.sort(np.random.default_rng(seed).uniform(0.5, 8, 5))[:, None]
    agreed(demanded(seed, seconds), parse_target(target), window, scales)


@pytest.mark.parametrize("target", TARGETS)
def test_a_period_of_several_pieces(target: str) -> None:
    sent = demanded(4, 5000)
    sent[2040:2060] += 5e6  # late from one piece into the next
    sent[4990:] += 5e6  # and at the end
    agreed(sent, parse_target(target), Window(), np.linspace(1, 4, 8)[:, None])


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_found_is_the_same(target: str) -> None:
    sent = demanded(7, 700, 12)
    recorded = recorded_of(sent)
    window, aim = Window(), parse_target(target)
    units = np.flatnonzero(sent.any(axis=0))
    high = enough(surge_bytes(sent[:, units], surge_window_s(window)), window)
    found = least_that(Trial(recorded, units, aim, window).met, sent.mean(axis=0)[units], high)
    expected = smallest(demand_of(sent), aim)[units]
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    alone = []
    for at in range(len(units)):
        one = slice(at, at + 1)
        trial = Trial(recorded, units[one], aim, window)
        alone.append(least_that(trial.met, sent.mean(axis=0)[units[one]], high[one]))
    assert np.concatenate(alone).tolist() == pytest.approx(found.tolist(), rel=1e-9)


def test_huge_use_of_one_hides_nothing_of_another() -> None:
    sent = demanded(9, 200)
    sent[:, 0] = 2.0**58
    agreed(sent, parse_target("p99 throttle < 100 ms"), Window(), np.linspace(1, 4, 8)[:, None])


def test_who_is_over_the_limit_and_late_with_nothing_is_throttled_on() -> None:
    """A little more than the window takes, in the last second of a slab: all of it passes at once."""
    sent = np.zeros((200, 1))
    sent[SLAB_S - 1] = 1.1e6 + 50
    sent[100:121] = 1
    target = parse_target("throttled share < 20 %")
    assert not target.met(stretch(recorded_of(sent), np.arange(1)).replay(np.array([[1e5]]), Window()), Window()).any()
    agreed(sent, target, Window(), np.array([[1e5], [1.2e5]]) / sent.mean())
