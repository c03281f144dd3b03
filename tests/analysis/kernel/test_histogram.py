import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.histogram import BINS, EDGES_S, add, bin_of, quantile_s

times = st.lists(st.floats(0, 1e5), min_size=1, max_size=50)


@given(times)
def test_a_time_lies_within_its_bin(values: list[float]) -> None:
    bins = bin_of(np.array(values))
    assert (EDGES_S[bins] <= np.array(values) * (1 + 1e-12)).all()
    assert (np.array(values) <= EDGES_S[bins + 1] * (1 + 1e-12)).all()


@given(times, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_within_a_bin_of_the_true_ones(values: list[float], share: float) -> None:
    histogram = np.zeros((1, BINS))
    add(histogram, np.zeros(len(values), dtype=int), np.array(values), np.ones(len(values)))
    true = float(np.quantile(values, share, method="inverted_cdf"))
    found = float(quantile_s(histogram, share)[0])
    assert found == pytest.approx(true, rel=0.045, abs=1e-3)


def test_weighted_samples_count_in_their_own_column() -> None:
    histogram = np.zeros((2, BINS))
    add(histogram, np.array([0, 1, 1, 1]), np.array([5.0, 0.0, 2.0, 2.0]), np.array([1.0, 97.0, 1.0, 2.0]))
    assert histogram.sum(axis=1).tolist() == [1, 100]
    assert quantile_s(histogram, 0.97).tolist() == [pytest.approx(5, rel=0.05), 0]
    assert quantile_s(histogram, 0.98)[1] == pytest.approx(2, rel=0.05)


def test_quantile_is_zero_when_empty_and_capped_when_huge() -> None:
    histogram = np.zeros((2, BINS))
    add(histogram, np.array([1]), np.array([1e12]), np.array([1.0]))
    assert quantile_s(histogram, 0.5).tolist() == [0, EDGES_S[BINS - 1]]
