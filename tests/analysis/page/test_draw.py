import re
from datetime import UTC, datetime, timedelta

import pytest

from analysis.page import draw

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
STEPS = [BEGIN + timedelta(minutes=minute) for minute in range(4)]


def numbers(svg: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?\d+\.?\d*", "".join(re.findall(r' d="([^"]*)"', svg)))]


def test_a_strip_has_a_cell_where_there_is_something() -> None:
    svg = draw.strip([0.0, 0.001, 0.5, 1.0], STEPS, 60)
    assert re.findall(r'class="(h\d)" x="(\d)"', svg) == [("h0", "1"), ("h3", "2"), ("h5", "3")]
    assert "2026-03-01 00:02 to 00:03: 50 % of the time, 30 s" in svg


def test_a_bar_ends_at_its_scale() -> None:
    assert max(numbers(draw.bar(0.5, 0.9, 1.3, 400.0, scale=2))) <= 100


@pytest.mark.parametrize(("p99", "css"), [(0.2, "cool"), (0.7, "warm"), (0.9, "hot"), (3, "hot")])
def test_a_bar_shows_how_close_it_is(p99: float, css: str) -> None:
    assert f'class="{css} mark"' in draw.bar(0, 0, p99, p99, 1.25)


def test_stacked_layer_starts_where_the_lower_one_ends() -> None:
    svg = draw.stack([[1.0, 2.0], [3.0, 0.0]], top=4)
    assert re.findall(r'class="(s\d)"', svg) == ["s0", "s1"]
    lower, upper = re.findall(r' d="([^"]*)"', svg)
    assert lower == "M0 100.0L0 75.0H1L1 50.0H2L2 100.0H1L1 100.0H0Z"
    assert upper == "M0 75.0L0 0.0H1L1 50.0H2L2 50.0H1L1 75.0H0Z"


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.5, 1), (1000, 1000), (1025, 2 * 1024), (700 * 2**20, 800 * 2**20)]
)
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert draw.round_up(value, 1024) == top


def test_ticks_cover_the_period() -> None:
    assert re.findall(r">([^<]+)</span>", draw.ticks(BEGIN, BEGIN + timedelta(days=1)))[::3] == [
        "00:00",
        "12:00",
        "00:00",
    ]


def test_stack_has_a_tip_for_each_step_and_a_line_where_there_is_a_limit() -> None:
    svg = draw.stack([[1.0, 2.0, 0.0]], 4, ["a <b>", "c", "d"], {0: 3.0, 2: 5.0})
    assert re.findall(r"<title>(.*?)</title>", svg) == ["a &lt;b&gt;", "c", "d"]
    assert re.findall(r'class="limit" d="([^"]*)"', svg) == ["M0 25.0H1"]
