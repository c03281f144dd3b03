"""Costs held against aims, and the line through them."""

import pytest

from bench.analysis.figures import Growth, Measured, growths
from bench.analysis.process_tree import Cost
from bench.analysis.steps import Aim

MILLION = 1_000_000
AIM = Aim(3.5)


def measured(rows_m: float, cpu_s: float, *, peak_gib: float = 1, step: str = "ingest") -> Measured:
    return Measured(step, "wide", int(rows_m * MILLION), Cost(cpu_s, cpu_s, cpu_s, int(peak_gib * 2**30), 0))


@pytest.mark.parametrize(
    ("one", "missed"),
    [
        (measured(10, 34), []),
        (measured(10, 36), ["cpu"]),
        (measured(2, 36), []),
        (measured(20, 34, peak_gib=3.1), ["memory"]),
        (measured(2, 1, peak_gib=3.1), ["memory"]),
        (measured(100, 34, peak_gib=3.1), []),
        (measured(20, 100, peak_gib=3.1), ["cpu", "memory"]),
    ],
)
def test_figures_over_their_aim_are_marked_missed(one: Measured, missed: list[str]) -> None:
    assert one.misses(AIM) == missed
    assert ("MISSED" in one.line(AIM)) == bool(missed)
    assert one.misses(None) == []


def test_growth_is_fitted_as_fixed_cost_and_cost_per_row() -> None:
    growth = Growth.of([measured(rows, 10 + 3 * rows) for rows in (2, 5, 10, 20)])
    assert growth is not None
    assert (growth.fixed_s, growth.cpu_s_per_million) == pytest.approx((10, 3))
    assert growth.worst == pytest.approx(0)


def test_growth_faster_than_rows_is_off_the_line() -> None:
    growth = Growth.of([measured(rows, rows**2) for rows in (2, 5, 10, 20)])
    assert growth is not None
    assert growth.worst > 0.2


def test_growth_needs_three_worlds_of_one_step() -> None:
    some = [measured(rows, rows) for rows in (2, 5, 10)] + [measured(rows, rows, step="report") for rows in (2, 5)]
    assert list(growths(some)) == [("ingest", "wide")]
