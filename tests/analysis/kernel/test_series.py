"""Sparse seconds against the arrays that the kernel takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.censoring import Answer, bounds
from analysis.kernel.demand import Demand, surge_bytes
from analysis.kernel.fluid import replay
from analysis.kernel.histogram import Floats
from analysis.kernel.series import Recorded
from analysis.kernel.stretch import stretches
from quotas.rate import Window

WINDOW = Window()
MB = 1e6


def rows(number: list[int], begin_ms: list[int], interval_ms: list[int], sent: list[float]) -> SeriesRows:
    nothing = np.zeros(len(number))
    return SeriesRows(np.array(number), np.array(begin_ms), np.array(interval_ms), np.array(sent), nothing)


def recorded_of(sent: Floats, muted_s: Floats | None = None, unit_of: list[int] | None = None) -> Recorded:
    """What rows of one second say of [second, series], in requests of 10 kB."""
    second, series = np.nonzero(sent + (0 if muted_s is None else muted_s))
    muted = np.zeros(len(second)) if muted_s is None else muted_s[second, series] * 1000
    second_ms = np.full(len(second), 1000)
    found = SeriesRows(series, second * 1000, second_ms, sent[second, series], muted)
    units = np.arange(sent.shape[1]) if unit_of is None else np.array(unit_of)
    requests: Floats = np.bincount(units, sent.sum(axis=0) / 10_000).astype(np.float64)
    return Recorded.of(Cells.of(found), units, requests, len(sent))


def dense(cells: Cells, seconds: int, numbers: int) -> Floats:
    sent = np.zeros((seconds, numbers))
    sent[cells.second, cells.number] = cells.sent_bytes
    return sent


def by_unit(sent: Floats, unit_of: list[int]) -> Floats:
    """Columns of series as columns of two units."""
    return np.stack([sent[:, np.array(unit_of) == unit].sum(axis=1) for unit in range(2)], axis=1)


def demand_of(sent: Floats) -> Demand:
    return Demand.recorded(sent, sent / 10_000)


def bursts(seconds: int, series: int, seed: int = 3) -> Floats:
    rng = np.random.default_rng(seed)
    busy = rng.random((seconds // 50 + 1, series)).repeat(50, axis=0)[:seconds] < 0.4
    return np.where(busy, rng.gamma(4, MB / 4, (seconds, series)), 0)


def test_an_interval_of_a_second_is_one_cell() -> None:
    cells = Cells.of(rows([0, 0, 1], [0, 1000, 1000], [1000, 1000, 1000], [5.0, 7.0, 9.0]))
    assert list(zip(cells.number, cells.second, cells.sent_bytes, strict=True)) == [(0, 0, 5), (0, 1, 7), (1, 1, 9)]


def test_beats_that_are_off_by_milliseconds_are_the_same_beat() -> None:
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


def test_the_most_in_any_window() -> None:
    sent = bursts(700, 5)
    cells = recorded_of(sent).low
    assert cells.surge_bytes(6, 11) == pytest.approx([*surge_bytes(sent, 11), 0])


def test_rows_of_several_tasks_add_up() -> None:
    sent = bursts(300, 4)
    whole, half = recorded_of(sent).low, recorded_of(sent / 2).low
    both = half.plus(Cells.none()).plus(half)
    assert dense(both, 300, 4) == pytest.approx(dense(whole, 300, 4))
    thrice = Cells.none().plus(half, Cells.none(), half, whole)
    assert dense(thrice, 300, 4) == pytest.approx(2 * dense(whole, 300, 4))


@pytest.mark.parametrize("seconds", [100, 2048, 5000])
def test_pieces_of_a_period_are_the_period(seconds: int) -> None:
    """However long: what waits, and what the window holds, is carried over."""
    sent = bursts(seconds, 6)
    sent[:, 5] = 0
    sent[seconds // 3 : seconds // 3 + 2, 5] = 300 * MB  # once, and then nothing for the rest
    limits = np.array([[0.3 * MB, 0.6 * MB, MB, 3 * MB, np.inf, 0.5 * MB], [0.2 * MB] * 6])
    whole = replay(demand_of(sent), limits, WINDOW)
    recorded = recorded_of(sent)
    for stretch in stretches(recorded, np.arange(6), 2):
        pieces = stretch.replay(limits[:, stretch.units], WINDOW)
        for name in ("sent_bytes", "waiting_bytes", "throttled_s", "active_s", "episodes", "peak_waiting_bytes"):
            expected = getattr(whole, name)[:, stretch.units]
            assert getattr(pieces, name) == pytest.approx(expected, rel=1e-6, abs=1e-3), name
        assert pieces.delay_s(0.99) == pytest.approx(whole.delay_s(0.99)[:, stretch.units], rel=0.05, abs=0.01)
        assert pieces.throttle_s(0.99) == pytest.approx(whole.throttle_s(0.99)[:, stretch.units], rel=0.05, abs=0.01)
        assert pieces.seconds == seconds


def test_a_hopeless_backlog_does_not_grow_in_memory() -> None:
    sent = np.full((9000, 1), MB)
    (stretch,) = stretches(recorded_of(sent), np.array([0]), 1)
    outcome = stretch.replay(np.array([[0.1 * MB]]), WINDOW)
    assert len(outcome.carry.tail_bytes) <= 7200
    assert outcome.delay_s(0.99)[0, 0] > 7000
    assert outcome.sent_bytes[0, 0] + outcome.waiting_bytes[0, 0] == pytest.approx(sent.sum())


def test_series_that_were_held_up_are_bounded_apart() -> None:
    """Two of three series of one unit, as the kernel bounds them each and gathers them then."""
    sent = bursts(400, 4)
    muted_s = np.zeros_like(sent)
    muted_s[100:150, 0] = 0.5
    muted_s[200:220, 1] = 1.0
    unit_of = [0, 0, 0, 1]
    recorded = recorded_of(sent, muted_s, unit_of)
    expected = bounds(demand_of(sent), muted_s)
    assert dense(recorded.low, 400, 2) == pytest.approx(by_unit(sent, unit_of))
    assert dense(recorded.high, 400, 2) == pytest.approx(by_unit(expected.high.sent_bytes, unit_of))
    assert recorded.answers == (Answer.INTERVAL, Answer.EXACT)
    assert recorded.low.sums(recorded.low.muted_s, 2) == pytest.approx([45, 0])


def test_held_up_until_the_recording_ended() -> None:
    sent = bursts(100, 2)
    muted_s = np.zeros_like(sent)
    muted_s[90:, 1] = 1
    assert recorded_of(sent, muted_s).answers == (Answer.EXACT, Answer.UNKNOWN)


def test_years_in_which_nothing_was_sent_take_no_time() -> None:
    """Also between two throttles: neither the replay nor the demand at most goes through them second by second."""
    seconds = 10**9
    burst = np.full(20, 3 * MB)
    second = np.concatenate((np.arange(20), np.arange(20) + seconds - 20))
    sent, muted_ms = np.tile(burst, 2), np.full(40, 500.0)
    found = SeriesRows(np.zeros(40, dtype=np.intp), second * 1000, np.full(40, 1000), sent, muted_ms)
    recorded = Recorded.of(Cells.of(found), np.zeros(1, dtype=np.intp), np.full(1, 400.0), seconds)
    (stretch,) = stretches(recorded, np.arange(1), 1)
    for high in (False, True):
        outcome = stretch.replay(np.array([[MB]]), WINDOW, high=high)
        assert outcome.demand_bytes[0, 0] == pytest.approx(sent.sum())
        assert outcome.seconds == seconds
