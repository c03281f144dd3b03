"""What the benchmark of shipping makes of the documents that it finds, and of its phases."""

from bench.usage import _compare, _table


def test_documents_are_checked_for_missing_and_doubled_numbers() -> None:
    found = [
        {"seq": 0, "rows": 10, "dropped": 0},
        {"seq": 3, "rows": 10, "dropped": 2},
        {"seq": 4, "rows": 7, "dropped": 2},
        {"seq": 4, "rows": 7, "dropped": 2},
    ]
    assert _compare(found) == {"documents": 3, "rows": 27, "twice": 1, "missing": 2, "dropped": 2}


def test_shipping_cost_is_the_difference_between_the_phases() -> None:
    figures = dict.fromkeys(("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "own_p99_ms", "own_p999_ms", "own_max_ms"), 1.0)
    phases = [
        {"phase": name, "seconds": 60.0, "cpu": cpu, "shipped_rows_per_s": 9_999.5, **figures}
        for name, cpu in (("not shipping", 0.05), ("shipping", 0.07))
    ]
    _, first, second, aims = _table(phases).splitlines()
    assert first.split()[3:5] == ["5.00%", "0.00%"]
    assert second.split()[2:4] == ["7.00%", "2.00%"]
    assert aims == "aims: 3% more of a core, p99 2 ms"
