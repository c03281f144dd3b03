import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.arrays import Bools, Floats
from analysis.kernel.histogram import EDGES_S
from analysis.kernel.outcome import ReplayResult
from analysis.kernel.replay import SLAB_S
from analysis.kernel.search import meets, smallest
from analysis.kernel.target import Measure, Target, parse_target
from analysis.recommend.job import with_headroom
from config.problems import InvalidValue
from quotas.rate import Window
from tests.analysis.demands import recorded_of, replayed
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
def test_target_text_is_parsed_to_measure_and_share(text: str, target: Target) -> None:
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
def test_invalid_target_is_refused_with_a_hint(text: str, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem) as raised:
        parse_target(text)
    assert raised.value.hint


def meeting(outcome: ReplayResult, target: Target, window: Window = Window()) -> Bools:  # noqa: B008  frozen
    """Return where all figures of a replay meet a target, [scenario, unit]."""
    if target.measure is Measure.SHARE:
        return np.asarray(outcome.throttled_s < target.most * np.maximum(outcome.active_s, 1))
    times = outcome.throttles if target.measure is Measure.THROTTLE else outcome.delays
    longer = times[..., EDGES_S[:-1] >= target.edge_s(window)].sum(axis=-1)
    return np.asarray(longer <= (1 - target.share) * times.sum(axis=-1))


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
        quota = smallest(recording.recorded, target, Window())[0]
        assert met(target, recording.again(with_headroom(float(quota), 0.15)))
        if target.measure is Measure.SHARE:  # and are no larger than they must be
            assert not met(target, recording.again(0.7 * quota))


@examples(0.5)
@given(st.integers(0, 2**32), st.sampled_from(["p99 throttle < 2 s", "p90 delay < 5 s", "throttled share < 5 %"]))
def test_the_smallest_quota_meets_the_target_in_the_model(seed: int, text: str) -> None:
    rng = np.random.default_rng(seed)
    sent = np.where(rng.random((100, 4)) < rng.random(4), rng.integers(0, 10_000, (100, 4)), 0)
    known = recorded_of(sent)
    target = parse_target(text)
    quota = smallest(known, target, Window())
    used = sent.sum(axis=0) > 0
    assert (quota[~used] == 0).all()
    assert meeting(replayed(known.high, np.maximum(quota, 1)), target)[0][used].all()
    assert (quota >= sent.mean(axis=0) * 0.999).all()


def test_target_met_at_the_mean_rate_needs_hardly_more() -> None:
    known = recorded_of(np.full((60, 1), 100.0))
    assert smallest(known, parse_target("throttled share < 100 %"), Window())[0] <= 110


def test_search_without_any_use_recommends_zero() -> None:
    assert smallest(recorded_of(np.zeros((9, 2))), parse_target("max delay < 1s"), Window()).tolist() == [0, 0]


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
    """The highest quota that fails is the same; of those below a search says nothing else."""
    sent = sent[:, sent.any(axis=0)]
    demand = recorded_of(sent).high
    tried = tried * np.maximum(sent.mean(axis=0), 1)
    whole = meeting(replayed(demand, tried, window), target, window)
    from_there_on = np.logical_and.accumulate(whole[::-1])[::-1]
    assert meets(demand, tried, target, window).tolist() == from_there_on.tolist()
    some = np.arange(demand.units)[::2]
    assert meets(demand.only(some), tried[:, some], target, window).tolist() == from_there_on[:, some].tolist()


@examples(4)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 11, SLAB_S - 1, SLAB_S, SLAB_S + 1, 5 * SLAB_S + 7]),
    st.sampled_from(TARGETS),
    st.sampled_from(WINDOWS),
)
def test_search_agrees_with_the_whole_replay(seed: int, seconds: int, target: str, window: Window) -> None:
    scales = np.sort(np.random.default_rng(seed).uniform(0.5, 8, 5))[:, None]
    agreed(demanded(seed, seconds), parse_target(target), window, scales)


@pytest.mark.parametrize("target", TARGETS)
def test_search_over_many_slabs_agrees_with_the_whole_replay(target: str) -> None:
    sent = demanded(4, 5000)
    sent[2040:2060] += 5e6  # late from one piece into the next
    sent[4990:] += 5e6  # and at the end
    agreed(sent, parse_target(target), Window(), np.linspace(1, 4, 8)[:, None])


@pytest.mark.parametrize("target", TARGETS)
def test_smallest_quota_of_a_client_is_independent_of_others(target: str) -> None:
    sent = demanded(7, 700, 12)
    aim = parse_target(target)
    found = smallest(recorded_of(sent), aim, Window())
    alone = [smallest(recorded_of(sent[:, unit : unit + 1]), aim, Window()).item() for unit in range(12)]
    assert alone == pytest.approx(found.tolist(), rel=1e-9)


def test_search_beside_a_huge_client_agrees_with_the_whole_replay() -> None:
    sent = demanded(9, 200)
    sent[:, 0] = 2.0**58
    agreed(sent, parse_target("p99 throttle < 100 ms"), Window(), np.linspace(1, 4, 8)[:, None])


def test_client_over_the_limit_at_slab_end_stays_throttled() -> None:
    """A little more than the window takes, in the last second of a slab: all of it passes at once."""
    sent = np.zeros((200, 1))
    sent[SLAB_S - 1] = 1.1e6 + 50
    sent[100:121] = 1
    target = parse_target("throttled share < 20 %")
    assert not meeting(replayed(recorded_of(sent).high, [[1e5]]), target).any()
    agreed(sent, target, Window(), np.array([[1e5], [1.2e5]]) / sent.mean())
