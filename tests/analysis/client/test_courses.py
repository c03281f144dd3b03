"""Lines of plots from intervals, without Spark: what is even, what is idle, what others did, and changes of limits."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from analysis.client import plots
from analysis.client.asked import parse
from analysis.client.charged import charged, read
from analysis.client.courses import Course, _Charges, _course, _Drawn, step_of
from analysis.metrics.period import Period
from tests.analysis.records import BEGIN, Document, document, row, tables

ALICE = parse("user=alice,client-id=app")
ONE: dict[str, Any] = {"produce_rule": "user=alice", "produce_limit": 1000.0}
OTHER: dict[str, Any] = {"produce_rule": "client-id=app", "produce_limit": 500.0}


def period(seconds: float, interval_ms: int = 1000, begin_s: float = 0.0) -> Period:
    begin = BEGIN + timedelta(seconds=begin_s)
    return Period(begin, begin + timedelta(seconds=seconds), interval_ms, (11_000,), 1, ("enforce",), 1, 1)


def used(amount: int, user: str = "alice", **columns: Any) -> dict[str, Any]:
    return row(user, **{"produce_bytes": amount, **ONE, **columns})


def drawn(documents: list[Document], over: Period, *, step_s: int = 1) -> Course:
    """The course of the one panel that there is."""
    kinds = ("produce",)
    found = tables(read(kinds, ()), documents)
    numbers: dict[int, Any] = {}
    for table in found:
        for _, _, rows in charged(table, kinds, ()):
            for each in rows.to_pylist():
                if (each["user"], each["client_id"]) == ("alice", "app"):
                    numbers[each["counter"]] = each
    pairs = np.array(sorted(numbers), dtype=np.int64)
    nobodys = np.array([number for number, each in numbers.items() if each["rule"] is None], dtype=np.int64)
    work = _Charges(ALICE, kinds, (), pairs, np.zeros_like(pairs), nobodys)
    rows = [part for table in found for part in work.rows(table)]
    [line] = list(_Drawn(over, step_s, {0: 1.0})(iter(rows)))
    [values] = line.to_pylist()
    assert values.pop("panel") == 0
    return _course(values)


def test_a_step_keeps_the_mean_the_least_and_the_most() -> None:
    amounts = [100, 300, 200, 0, 50, 50]
    found = drawn([document(at, [used(amount)]) for at, amount in enumerate(amounts)], period(6), step_s=3)
    assert found.mean.tolist() == [200, pytest.approx(100 / 3)]
    assert found.least.tolist() == [100, 0], "a second without use has no charge"
    assert found.most.tolist() == [300, 50]
    assert found.active == 5 / 6


def test_an_interval_is_even_and_may_reach_over_steps() -> None:
    """One of 4 s, which begins in the middle of a step; the period begins there too."""
    found = drawn([document(0, [used(4000)], second=0.5, interval_ms=4000)], period(4, 4000, 0.5), step_s=2)
    assert found.mean.tolist() == [1000, 1000, 1000]
    assert found.least.tolist() == [1000, 1000, 1000]
    assert found.most.tolist() == [1000, 1000, 1000]


def test_clocks_that_jitter_leave_no_idle_second() -> None:
    late = [0, 3, -2, 1]
    documents = [document(at, [used(100)], second=at + late[at] / 1000, interval_ms=1000) for at in range(4)]
    found = drawn(documents, period(4))
    assert found.least.tolist() == pytest.approx([100] * 4)
    assert found.mean.sum() == pytest.approx(400, rel=0.01)


def test_what_others_used_of_the_counter_is_beside_it() -> None:
    rows = [[used(100), used(700, client_id="batch")], [used(900, client_id="batch")], [used(100)]]
    found = drawn([document(at, each) for at, each in enumerate(rows)], period(3))
    assert found.mean.tolist() == [100, 0, 100]
    assert found.shared.tolist() == [800, 900, 100], "also while it was idle"
    assert found.full[3] == pytest.approx(1800 / 11_000), "the most is exact, percentiles are rounded"
    assert found.full_while_active[3] == pytest.approx(1800 / 11_000)
    assert found.full_while_active[0] == pytest.approx(800 / 11_000, rel=0.002)


def test_a_limit_that_goes_to_and_fro() -> None:
    """Nobody who is on a counter that it has left, or has not come to, is beside it."""
    mine = [used(10), used(10, **OTHER), used(10), used(10, produce_rule=None, produce_limit=None), used(10)]
    carol = row("carol", produce_bytes=500, **OTHER)
    free = row("dave", produce_bytes=9000)
    found = drawn([document(at, [each, carol, free]) for at, each in enumerate(mine)], period(5))
    assert found.shared.tolist() == [10, 510, 10, 10, 10]
    begin_ms = round(BEGIN.timestamp() * 1000)
    assert [(since - begin_ms, limit) for since, _, limit in found.changes] == [
        (0, 1000),
        (1000, 500),
        (2000, 1000),
        (3000, None),
        (4000, 1000),
    ]
    assert len({counter for _, counter, _ in found.changes}) == 3


def test_a_limit_that_was_raised_under_the_same_rule() -> None:
    mine = [used(10), used(10, produce_limit=2000.0), used(10, produce_limit=2000.0)]
    found = drawn([document(at, [each]) for at, each in enumerate(mine)], period(3))
    assert [limit for _, _, limit in found.changes] == [1000, 2000]


def test_muted_time_is_a_share_of_a_step() -> None:
    muted = [used(10, produce_muted_ms=500), used(0, produce_muted_ms=1000), used(10)]
    found = drawn([document(at, [each]) for at, each in enumerate(muted)], period(3))
    assert found.muted.tolist() == [0.5, 1, 0]
    assert found.least.tolist() == [10, 0, 10]


def test_percentiles_count_idle_time_as_the_report_does() -> None:
    found = drawn([document(at, [used(1100)], second=at * 50) for at in range(2)], period(100))
    assert found.full == pytest.approx([0, 0, 0.1, 0.1])
    assert found.full_while_active == pytest.approx([0.1] * 4)
    assert found.over == 0


@pytest.mark.parametrize(("seconds", "step_s"), [(60, 1), (1000, 1), (1001, 2), (86_400, 120), (30 * 86_400, 3600)])
def test_a_plot_has_at_most_a_thousand_points(seconds: int, step_s: int) -> None:
    assert step_of(period(seconds)) == step_s


def test_what_is_drawn_stays_within_the_plot() -> None:
    course = drawn([document(at, [used(10 * at)]) for at in range(400)], period(400))
    for small in (False, True):
        svg = plots.plot(course, [None, *([1000.0] * 399)], 5000.0, shared=True, small=small)
        assert svg.count("<path") == 5
        assert "nan" not in svg
        assert len(svg) < 40_000
    assert plots.strip([0.0, 1.0] * 200, 100) == [0.5] * 100
