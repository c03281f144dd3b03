import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.advice import Confidence, confidence, round_up, with_headroom
from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Demand, Indices
from analysis.kernel.fluid import SLAB_S, replay
from analysis.kernel.histogram import Floats
from analysis.kernel.outcome import Outcome
from analysis.kernel.search import Trial, smallest
from analysis.kernel.series import Recorded
from analysis.kernel.stretch import stretches
from analysis.kernel.target import Measure, Target, parse_target
from config.problems import InvalidValue
from quotas.rate import Window
from tests.analysis.kernel.test_series import recorded_of
from tests.analysis.workloads import SHAPES, recordings
from tests.harness.examples import examples
from tests.reference.request_level import Run


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("p99 throttle < 100 ms", Target(Measure.THROTTLE, 0.99, 0.1)),
        ("  p99.9  delay<2s ", Target(Measure.DELAY, 0.999, 2.0)),
        ("max throttle < 1m", Target(Measure.THROTTLE, 1.0, 60.0)),
        ("throttled share < 0.1 %", Target(Measure.SHARE, 1.0, 0.001)),
        ("throttled share<0.25", Target(Measure.SHARE, 1.0, 0.25)),
    ],
)
def test_targets(text: str, target: Target) -> None:
    parsed = parse_target(text)
    assert (parsed.measure, parsed.most) == (target.measure, target.most)
    assert parsed.share == pytest.approx(target.share)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a target"),
        ("p99 latency < 1 s", "is not a target"),
        ("p99 throttle > 1 s", "is not a target"),
        ("p100 throttle < 1 s", "is not a target"),
        ("p0 throttle < 1 s", "p0 asks for nothing"),
        ("p99 throttle < 100", "has no unit"),
        ("p99 throttle < 1 day", "unknown unit 'day'"),
        ("p99 throttle < 0 ms", "nothing is below 0 ms"),
        ("throttled share < 5 s", "'5 s' is not a share"),
        ("throttled share < 200 %", "'200 %' is not a share"),
        ("throttled share < 0", "'0' is not a share"),
    ],
)
def test_what_is_no_target(text: str, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem) as raised:
        parse_target(text)
    assert raised.value.hint


def recorded(demand: Demand) -> Recorded:
    known = recorded_of(demand.sent_bytes)
    return dataclasses.replace(known, request_bytes=demand.request_bytes, peak_bytes_per_s=demand.peak_bytes_per_s)


def met(target: Target, run: Run) -> bool:
    if target.measure is Measure.SHARE:
        active = sum(muted > 0 or sent > 0 for muted, sent in zip(run.muted_s, run.served_bytes, strict=True))
        return sum(run.muted_s) / active < target.most
    times = run.throttles_s if target.measure is Measure.THROTTLE else run.waits_s
    return float(np.quantile(times, target.share)) < target.most


@pytest.mark.parametrize(
    "text",
    [
        "p99 throttle < 100 ms",
        "throttled share < 0.1 %",
        "p99 delay < 1 s",
        "p95 throttle < 2 s",
        "throttled share < 20 %",
    ],
)
def test_recommended_quotas_meet_their_target_request_by_request(text: str) -> None:
    target = parse_target(text)
    for recording in recordings(600, SHAPES[1:3]):
        quota = smallest(recorded(recording.demand), target, Window())[0]
        assert met(target, recording.again(with_headroom(quota).item()))
        if target.measure is Measure.SHARE:  # and are no larger than they must be
            assert not met(target, recording.again(0.7 * quota))


@examples(0.5)
@given(st.integers(0, 2**32), st.sampled_from(["p99 throttle < 2 s", "p90 delay < 5 s", "throttled share < 5 %"]))
def test_the_smallest_quota_meets_the_target_in_the_model(seed: int, text: str) -> None:
    rng = np.random.default_rng(seed)
    sent = np.where(rng.random((100, 4)) < rng.random(4), rng.integers(0, 10_000, (100, 4)), 0)
    demand = Demand.recorded(sent, np.ceil(sent / 500))
    target = parse_target(text)
    quota = smallest(recorded(demand), target, Window())
    used = sent.sum(axis=0) > 0
    assert (quota[~used] == 0).all()
    assert target.met(replay(demand, np.maximum(quota, 1)))[0][used].all()
    assert (quota >= sent.mean(axis=0) * 0.999).all()


def test_a_target_that_the_mean_rate_meets() -> None:
    demand = Demand.recorded(np.full((60, 1), 100.0), np.ones((60, 1)))
    assert smallest(recorded(demand), parse_target("throttled share < 100 %"), Window())[0] <= 110


def test_nobody_and_nothing() -> None:
    assert smallest(recorded_of(np.zeros((9, 2))), parse_target("max delay < 1s"), Window()).tolist() == [0, 0]


@given(st.floats(0, 1e15))
def test_rounding_is_upwards_and_at_most_a_tenth(needed: float) -> None:
    rounded = float(round_up(needed))
    assert needed <= rounded <= max(needed * 1.1 + 1e-9, np.ceil(needed))


def test_headroom() -> None:
    assert with_headroom([100.0, 1_000_000.0, 0.0]).tolist() == [120, 1_200_000, 0]
    assert with_headroom([100.0], 0.0).tolist() == [100]


def test_confidence_comes_with_what_was_recorded() -> None:
    exact, interval, unknown = Answer.EXACT, Answer.INTERVAL, Answer.UNKNOWN
    week = 7 * 86_400
    assert confidence((exact, interval, unknown), week) == (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)
    assert confidence((exact, exact), [86_400, 3_600]) == (Confidence.MEDIUM, Confidence.LOW)


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


def replayed(known: Recorded, units: Indices, tried: Floats, window: Window) -> Outcome:
    [whole] = stretches(known, units, len(tried))
    return whole.replay(tried, window, high=True)


def agreed(sent: Floats, target: Target, window: Window, tried: Floats) -> None:
    """The highest quota that fails is the same; of those below a trial says nothing else."""
    known = recorded_of(sent)
    units = np.flatnonzero(sent.any(axis=0))
    if not len(units):
        return
    tried = tried * np.maximum(sent.mean(axis=0), 1)[units]
    whole = target.met(replayed(known, units, tried, window), window)
    from_there_on = np.logical_and.accumulate(whole[::-1])[::-1]
    trial = Trial(known, units, target, window)
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
def test_what_is_found_does_not_depend_on_others(target: str) -> None:
    sent = demanded(7, 700, 12)
    aim = parse_target(target)
    found = smallest(recorded_of(sent), aim, Window())
    alone = [smallest(recorded_of(sent[:, unit : unit + 1]), aim, Window()).item() for unit in range(12)]
    assert alone == pytest.approx(found.tolist(), rel=1e-9)


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
    assert not target.met(replayed(recorded_of(sent), np.arange(1), np.array([[1e5]]), Window()), Window()).any()
    agreed(sent, target, Window(), np.array([[1e5], [1.2e5]]) / sent.mean())
