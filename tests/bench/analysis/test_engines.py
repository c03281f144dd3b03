"""Costs are compared only where the answers are the same."""

import pytest

from bench.analysis.engines import require_same
from bench.errors import BenchError

ANSWERS = {"steps": {"bytes": 1e12, "requests": 7.0}, "episodes fetch": {"episodes": 3.0}}


def test_rounding_is_no_difference() -> None:
    require_same(ANSWERS, {**ANSWERS, "steps": {"bytes": 1e12 + 1, "requests": 7.0}})


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({**ANSWERS, "episodes fetch": {"episodes": 4.0}}, "episodes fetch: episodes 3.0 of Spark, 4.0 of DuckDB"),
        ({"steps": ANSWERS["steps"]}, r"Spark answers \['episodes fetch', 'steps'\], DuckDB \['steps'\]"),
    ],
)
def test_other_answers_are_an_error(theirs: dict[str, dict[str, float]], said: str) -> None:
    with pytest.raises(BenchError, match=said):
        require_same(ANSWERS, theirs)
