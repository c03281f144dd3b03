from typing import Any

import pytest

from proxy.page import html


def plot(name: str, *values: Any, **more: Any) -> str:
    """Return what a macro of ``plots.html.j2`` draws."""
    drawn: str = getattr(html.TEMPLATES.get_template("plots.html.j2").module, name)(*values, **more)
    return drawn


def test_times_with_offset_are_shown_in_utc() -> None:
    assert html.moment("2026-03-01T12:00:05.250Z") == "2026-03-01 12:00:05"
    assert html.moment("2026-03-01T13:00:05+01:00") == "2026-03-01 12:00:05"
    assert html.away("2026-03-01T12:00:00Z", "2026-03-01T12:03:20Z") == "3 min 20 s"


def test_a_line_is_drawn_to_the_right_edge_and_has_gaps() -> None:
    svg = plot("hour", [1.0, None, 0.5], [0, 0, 0.4], limit=1.0)
    assert '<path class="line" d="M57 2.1H58M59 12.5H60"/>' in svg
    assert '<rect class="hot" x="59" y="22.0" width="1" height="2.0"/>' in svg
    assert '<path class="limit" d="M0 2.1H60"/>' in svg
    assert ' d="M57 2.1H58L58 12.5H59L59 2.1H60"/>' in plot("hour", [1.0, 0.5, 1.0])


def test_chart_without_points_has_no_line() -> None:
    assert 'class="line"' not in plot("hour", [None] * 60, [None] * 60)
    assert 'd="M59 23.0H60"' in plot("hour", [0.0])


def test_last_hour_is_of_the_limit_or_without_one_of_the_bytes() -> None:
    point = {"ratio": None, "bytes_in_per_s": 5.0, "bytes_out_per_s": None, "throttled_share": None}
    assert 'class="limit"' not in plot("last_hour", [point])
    assert 'd="M59 2.1H60"' in plot("last_hour", [point])
    assert 'class="limit"' in plot("last_hour", [point | {"ratio": 0.5}])


@pytest.mark.parametrize(("ratio", "css", "width"), [(None, "cool", 0.0), (0.8, "warm", 80.0), (7, "hot", 100.0)])
def test_a_bar_shows_how_near_the_limit_is(ratio: float | None, css: str, width: float) -> None:
    assert f'<rect class="{css}" width="{width}" height="6"/>' in plot("bar", ratio)
