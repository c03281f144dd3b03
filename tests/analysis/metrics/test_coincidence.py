"""Made-up days (``neighbour_cases``): the true one is named, and of chance nothing is said."""

import numpy as np
import pytest

from analysis.metrics import coincidence
from analysis.metrics.coincidence import (
    LAGS,
    LEAST_BURSTS,
    LEVEL,
    Others,
    adjusted,
    apart,
    bursts,
    coincides,
    later,
    weigh,
)
from tests.analysis.metrics import neighbour_cases as cases
from tests.analysis.metrics.neighbour_cases import CULPRIT, FOLLOWER, SECOND, Case, Maker

SEEDS = [range(4), pytest.param(range(4, 60), marks=pytest.mark.matrix)]
MOST_WRONG = 0.125
"""Of seeds in which somebody is named by chance. At a level of 5 %, eight of 56 are one in a hundred such tests."""


def named(case: Case) -> list[str]:
    """Return who is named, the strongest first, as ``neighbours`` does with what it has from Spark."""
    peaks = {name: case.peak(name) for name in case.bytes_}
    often = [name for name, peak in peaks.items() if len(bursts(peak)) >= LEAST_BURSTS]
    results = {name: weigh(peaks[name], case.others(name), len(often)) for name in often}
    found = {name: result for name, result in results.items() if result is not None}
    chances = adjusted([result.p for result in found.values()])
    sure = [name for name, p in zip(found, chances, strict=True) if coincides(found[name], p)]
    ranked = sorted(sure, key=lambda name: -found[name].score)
    behind = apart([(peaks[name], found[name].lag) for name in ranked], [case.others(name) for name in ranked], 1)
    return [name for name, stronger in zip(ranked, behind, strict=True) if stronger is None]


def of_seeds(maker: Maker, seeds: range) -> list[list[str]]:
    return [named(maker(np.random.default_rng(seed))) for seed in seeds]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    "maker",
    [
        *(cases.culprit, cases.late_culprit, cases.batch, cases.batch_with_culprit_in_it, cases.followed),
        *(cases.background, cases.background_of_ten, cases.held_as_kafka_does, cases.kept_from_its_share),
    ],
)
def test_the_true_one_is_named_first_and_hardly_ever_another(maker: Maker, seeds: range) -> None:
    found = of_seeds(maker, seeds)
    assert [names[0] for names in found] == [CULPRIT] * len(found)
    others = [set(names) - {CULPRIT, SECOND} for names in found]
    assert sum(map(bool, others)) <= MOST_WRONG * len(found), others
    if maker is cases.followed:
        assert sum(SECOND in names for names in found) >= 0.9 * len(found), "it harms at times of its own"


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    "maker",
    [
        cases.batch_at_its_own_quotas,
        cases.always_there,
        cases.once,
        cases.no_cause,
        cases.no_delay,
        cases.twenty_by_chance,
    ],
)
def test_of_chance_nothing_is_said(maker: Maker, seeds: range) -> None:
    assert sum(map(bool, of_seeds(maker, seeds))) <= MOST_WRONG * len(seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_of_a_batch_only_those_on_one_counter_are_named(seeds: range) -> None:
    for names in of_seeds(cases.one_counter, seeds):
        assert CULPRIT in names
        assert "beside" not in names, "it bursts when they do, and has a quota of its own"
        assert any(name.startswith("batch") for name in names), "what one of them uses, the others cannot"


def test_a_follower_is_believed_where_the_one_it_follows_does_not_peak() -> None:
    case = cases.followed(np.random.default_rng(1))
    peaks = {name: case.peak(name) for name in (CULPRIT, FOLLOWER, SECOND)}
    others = [case.others(name) for name in peaks]
    assert apart([(peak, 0) for peak in peaks.values()], others, 1) == [None, 0, None]


def test_what_the_numbers_are() -> None:
    """An hour with a peak in every tenth moment, and five times the delay in it; all are active all the time."""
    peak = np.arange(360) % 10 == 0
    delay = np.where(peak, 5.0, 1.0)
    found = weigh(peak, Others(delay, np.full(360, 2.0), np.zeros(360, dtype=int)), 1)
    assert found is not None
    assert (found.lag, found.hours, found.delay, found.in_peaks) == (0, 1, 504, 180)
    assert found.expected == pytest.approx(504 / 10)
    assert found.score == pytest.approx((180 - 50.4) / 504)
    assert found.p == pytest.approx(len(LAGS) / 10, abs=0.05), "of ten shifts, these find it by one of the lags"
    assert (found.low, found.high) == (-1, 1), "one hour says nothing of others"


def test_expected_is_by_who_is_active() -> None:
    """Peaks when all the others are there, and delayed as usual: half of the moments have all of the delay."""
    peak = np.tile([True, False], 720)
    usual = np.where(peak, 3.0, 1.0)
    found = weigh(peak, Others(usual * 10, usual, np.arange(1440) // 360), 1)
    assert found is None or found.score == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("delay", "usual", "peak"),
    [
        (np.zeros(720), np.zeros(720), np.arange(720) % 7 == 0),
        (np.ones(720), np.ones(720), np.ones(720, dtype=bool)),
        (np.ones(720), np.ones(720), np.zeros(720, dtype=bool)),
        (np.ones(1), np.ones(1), np.ones(1, dtype=bool)),
        (np.ones(720), np.ones(720), np.arange(720) < 360),
    ],
    ids=["nobody delayed", "always", "never", "one moment", "an hour as a whole"],
)
def test_nothing_to_compare(delay: np.ndarray, usual: np.ndarray, peak: np.ndarray) -> None:
    found = weigh(peak, Others(delay, usual, np.arange(len(peak)) // 360), 1)
    assert found is None or found.p > LEVEL


def test_a_gap_in_what_was_recorded_is_no_coincidence() -> None:
    """Of each hour a half is recorded, by chance which: in the other there are neither peaks nor delays."""
    said = 0
    for seed in range(40):
        chance = np.random.default_rng(seed)
        moments = 12 * cases.HOUR
        kept = (np.arange(moments) + chance.integers(cases.HOUR)) % cases.HOUR < cases.HOUR // 2
        delay, peak = (cases.waves(chance, moments, 40, 8) & kept for _ in range(2))
        found = weigh(peak, Others(delay.astype(float), kept.astype(float), np.arange(moments) // cases.HOUR), 1)
        said += found is not None and found.p <= LEVEL
    assert said <= 4


def test_bursts_are_peaks_with_a_rest_before_them() -> None:
    peak = np.zeros(40, dtype=bool)
    peak[[0, 1, 5, 12, 30, 31]] = True
    assert bursts(peak).tolist() == [0, 12, 30]
    assert later(peak, 2).nonzero()[0].tolist() == [2, 3, 7, 14, 32, 33]


def test_many_comparisons_are_corrected() -> None:
    assert adjusted([0.01, 0.04, 0.03, 0.2]) == pytest.approx([0.04, 0.09, 0.09, 0.2])
    assert adjusted([0.6, 0.9]) == [1.0, 1.0]
    assert adjusted([]) == []


def test_the_same_rows_give_the_same_p() -> None:
    case = cases.twenty_by_chance(np.random.default_rng(3))
    peak, others = case.peak("loud-0"), case.others("loud-0")
    assert weigh(peak, others, 7) == weigh(peak, others, 7)


def test_rare_chances_are_drawn_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases.culprit(np.random.default_rng(3))
    peak, others = case.peak(CULPRIT), case.others(CULPRIT)
    monkeypatch.setattr(coincidence, "_LEAST_DRAWS", 1999)
    few, many = weigh(peak, others, 1), weigh(peak, others, 100)
    assert few is not None
    assert many is not None
    assert (few.p, many.p) == (1 / 2000, 1 / 5001)
