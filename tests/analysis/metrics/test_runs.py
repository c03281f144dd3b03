"""Percentiles from counts of rounded values, against those of the values themselves."""

import numpy as np
import pytest

from analysis.metrics.runs import Runs, codes, values_of

SHARES = (0.5, 0.95, 0.99)


def percentile(values: np.ndarray, total: int, share: float) -> float:
    """Return the least value that a share of ``total`` does not exceed; those that are not there are 0."""
    every = np.sort(np.concatenate([np.zeros(total - len(values)), values]))
    return float(every[int(np.ceil(total * share)) - 1])


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = [random.exponential(size=random.integers(1, 400)) * 10.0 ** random.integers(-6, 6) for _ in range(20)]
    active = [random.random(len(each)) < random.random() for each in groups]
    active[0][:] = False
    totals = np.array([len(each) + random.integers(0, 500) for each in groups])
    number = np.repeat(np.arange(len(groups)), [len(each) for each in groups])
    code = codes(np.concatenate(groups))
    runs = Runs.of(number, code, np.ones_like(code), np.concatenate(active).astype(np.int64))
    for share in SHARES:
        expected = [percentile(each, total, share) for each, total in zip(groups, totals, strict=True)]
        assert runs.percentile(totals, share) == pytest.approx(expected, rel=0.002)
        busy = [
            percentile(each[on], on.sum(), share) if on.any() else np.nan
            for each, on in zip(groups, active, strict=True)
        ]
        assert runs.while_active(share) == pytest.approx(busy, rel=0.002, nan_ok=True)


def test_days_add_up_to_the_period() -> None:
    """However the values are parted: what is kept of days says the same as all of them."""
    random = np.random.default_rng(1)
    values, group = random.exponential(size=3000), random.integers(0, 7, 3000)
    group[:7] = np.arange(7)
    one, active = np.ones(3000, dtype=np.int64), (random.random(3000) < 0.5).astype(np.int64)
    whole = Runs.of(group, codes(values), one, active)
    parts = []
    for part in np.array_split(np.arange(3000), 4):
        present, number = np.unique(group[part], return_inverse=True)
        runs = Runs.of(number, codes(values[part]), one[part], active[part])
        counts = np.diff(runs.first, append=len(runs.code))
        parts.append((np.repeat(present, counts), runs.code, runs.busy, runs.active))
    added = Runs.of(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    for name in ("first", "code", "busy", "active"):
        assert np.array_equal(getattr(added, name), getattr(whole, name)), name


def test_limits_are_not_rounded_away() -> None:
    exact = np.array([0.0, 0.25, 0.5, 1.0, 1.25, 2.0, 1024.0])
    assert values_of(codes(exact)).tolist() == exact.tolist()
    values = np.random.default_rng(2).exponential(size=10_000) * 1e-3
    assert np.abs(values_of(codes(values)) / values - 1).max() < 0.002
    order = np.sort(values)
    assert (np.diff(codes(order)) >= 0).all()


def test_nothing_at_all() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    runs = Runs.of(nothing, nothing, nothing, nothing)
    assert runs.percentile(nothing, 0.5).tolist() == runs.while_active(0.5).tolist() == []
