"""Sparse seconds against dense arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.arrays import Floats
from analysis.kernel.cells import Cells, SeriesRows
from tests.analysis.demands import cells_of, dense

MB = 1e6


def rows(number: list[int], begin_ms: list[int], interval_ms: list[int], sent: list[float]) -> SeriesRows:
    nothing = np.zeros(len(number))
    return SeriesRows(np.array(number), np.array(begin_ms), np.array(interval_ms), np.array(sent), nothing)


def bursts(seconds: int, series: int, seed: int = 3) -> Floats:
    rng = np.random.default_rng(seed)
    busy = rng.random((seconds // 50 + 1, series)).repeat(50, axis=0)[:seconds] < 0.4
    return np.where(busy, rng.gamma(4, MB / 4, (seconds, series)), 0)


def test_an_interval_of_a_second_is_one_cell() -> None:
    cells = Cells.of(rows([0, 0, 1], [0, 1000, 1000], [1000, 1000, 1000], [5.0, 7.0, 9.0]))
    assert list(zip(cells.number, cells.second, cells.sent_bytes, strict=True)) == [(0, 0, 5), (0, 1, 7), (1, 1, 9)]


def test_intervals_off_by_milliseconds_fall_into_their_second() -> None:
    cells = Cells.of(rows([0, 0, 0], [3, 998, 2004], [995, 1006, 1011], [1.0, 2.0, 3.0]))
    assert cells.second.tolist() == [0, 1, 2]
    assert cells.sent_bytes.tolist() == [1, 2, 3]


def test_long_intervals_are_spread_evenly() -> None:
    cells = Cells.of(rows([4], [500], [2500], [100.0]))
    assert cells.second.tolist() == [0, 1, 2]
    assert cells.sent_bytes.tolist() == pytest.approx([20, 40, 40])


def test_short_intervals_add_up() -> None:
    cells = Cells.of(rows([0, 0, 0, 0], [0, 250, 500, 750], [250, 250, 250, 250], [1.0, 2.0, 3.0, 4.0]))
    assert cells.second.tolist() == [0]
    assert cells.sent_bytes.tolist() == pytest.approx([10])


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 20_000), st.integers(1, 15_000), st.integers(0, 10**9).map(float)),
        min_size=1,
        max_size=40,
    )
)
def test_no_byte_is_lost_or_made(found: list[tuple[int, int, int, float]]) -> None:
    number, begin_ms, interval_ms, sent = zip(*found, strict=True)
    cells = Cells.of(rows(list(number), list(begin_ms), list(interval_ms), list(sent)))
    expected = np.bincount(number, sent, 4)
    assert cells.sums(cells.sent_bytes, 4) == pytest.approx(expected)
    keys = list(zip(cells.number.tolist(), cells.second.tolist(), strict=True))
    assert keys == sorted(set(keys))


def test_largest_sum_of_any_window_matches_dense_arrays() -> None:
    sent = bursts(700, 5)
    expected = [np.convolve(sent[:, number], np.ones(11)).max() for number in range(5)]
    assert cells_of(sent).surge_bytes(6, 11) == pytest.approx([*expected, 0])


def test_rows_of_several_tasks_add_up() -> None:
    sent = bursts(300, 4)
    half = cells_of(sent / 2)
    both = half.plus(Cells.none()).plus(half)
    assert dense(both, 300, 4) == pytest.approx(sent)
    thrice = Cells.none().plus(half, Cells.none(), half, cells_of(sent))
    assert dense(thrice, 300, 4) == pytest.approx(2 * sent)


def test_selected_units_keep_their_cells_in_given_order() -> None:
    sent = bursts(100, 4)
    assert (dense(cells_of(sent).only(np.array([2, 0])), 100, 2) == sent[:, [2, 0]]).all()
