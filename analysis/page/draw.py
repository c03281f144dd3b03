"""Plots as inline SVG without text: they stretch with the page. Colours are classes of ``page.css``."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from analysis.page import words
from quotas import texts

_HEAT: Final = (0.0, 0.02, 0.1, 0.25, 0.5, 0.8)
"""The lower bounds of the levels 0 to 5 of a heat map, as shares."""
TICKS: Final = 6
SERIES: Final = 8
"""The number of colours."""


def strip(shares: Sequence[float], steps: Sequence[datetime], step_s: int) -> Markup:
    """Draw one row of a heat map: a cell for each step, darker with its share of the time."""
    cells = []
    for number, (share, step) in enumerate(zip(shares, steps, strict=True)):
        if share > 0:
            level = sum(share > least for least in _HEAT) - 1
            when = words.from_to(step, step + timedelta(seconds=step_s))
            tip = f"{when}: {texts.share(share)} of the time, {texts.duration(share * step_s)}"
            # A little wider than a step, to avoid hairlines between cells.
            cell = Markup('<rect class="h{}" x="{}" y="0" width="1.03" height="1"><title>{}</title></rect>')
            cells.append(cell.format(level, number, tip))
    return _svg("strip", len(shares), 1, "".join(cells))


def ticks(begin: datetime, end: datetime) -> Markup:
    """Draw the axis of times below plots that reach from ``begin`` to ``end``."""
    length = end - begin
    marks = []
    for part in range(TICKS + 1):
        at = begin + length * part / TICKS
        few = " few" if part % 3 else ""
        mark = Markup('<span class="tick{}" style="left:{:.2f}%">{}</span>')
        marks.append(mark.format(few, 100 * part / TICKS, words.moment(at, of=length)))
    return Markup('<div class="axis" aria-hidden="true">{}</div>').format(Markup("").join(marks))


def bar(p50: float, p95: float, p99: float, most: float, scale: float) -> Markup:
    """Draw how much of a limit is used: solid to p50, pale to p95, a mark at p99 and one at the maximum."""

    def x(value: float) -> float:
        return round(100 * min(value / scale, 1), 2)

    heat = "hot" if p99 >= 0.9 else "warm" if p99 >= 0.7 else "cool"
    return _svg(
        "bar",
        100,
        10,
        f'<rect class="rail" x="0" y="3" width="100" height="4"/>'
        f'<rect class="{heat} pale" x="0" y="2" width="{x(p95)}" height="6"/>'
        f'<rect class="{heat}" x="0" y="2" width="{x(p50)}" height="6"/>'
        f'<path class="{heat} mark" d="M{x(p99)} 1V9"/>'
        f'<path class="{heat} mark far" d="M{x(p99)} 5H{x(most)}M{x(most)} 3.5V6.5"/>'
        f'<path class="limit" d="M{x(1)} 0V10"/>',
    )


def stack(
    layers: Sequence[Sequence[float]],
    top: float,
    tips: Sequence[str] = (),
    line: Mapping[int, float] = MappingProxyType({}),
) -> Markup:
    """Draw layers of equal length upon each other, with a tip for each step, and a line at the limits of steps.

    ``top`` is the value at the upper edge.
    """
    count = len(layers[0])
    floor = [0.0] * count
    drawn = []
    for number, layer in enumerate(layers):
        roof = [below + value for below, value in zip(floor, layer, strict=True)]
        # A staircase: each value is constant within its step.
        over = "".join(f"L{i} {_y(value, top)}H{i + 1}" for i, value in enumerate(roof))
        under = "".join(f"L{i + 1} {_y(floor[i], top)}H{i}" for i in reversed(range(count)))
        drawn.append(f'<path class="s{min(number, SERIES)}" d="M0 {_y(floor[0], top)}{over}{under}Z"/>')
        floor = roof
    limits = "".join(f"M{i} {_y(limit, top)}H{i + 1}" for i, limit in line.items() if limit <= top)
    drawn += [f'<path class="limit" d="{limits}"/>'] if limits else []
    tip = Markup('<rect class="tip" x="{}" y="0" width="1" height="100"><title>{}</title></rect>')
    drawn += [tip.format(i, said) for i, said in enumerate(tips)]
    return _svg("stack", count, 100, "".join(drawn))


def round_up(value: float, base: int) -> float:
    """Return the end of an axis: the next 1, 2, 3, 4, 5 or 8 times a power of ``base`` times a power of ten."""
    if value <= 0:
        return 1
    unit = 1.0
    while value / unit >= base:
        unit *= base
    tens = 1.0
    while value / unit / tens > 10:
        tens *= 10
    return next(step * tens * unit for step in (1, 2, 3, 4, 5, 8, 10) if value <= step * tens * unit)


def _y(value: float, top: float, height: float = 100) -> float:
    return round(height * (1 - min(max(value / top, 0), 1)), 2)


def _svg(css: str, width: float, height: float, content: str) -> Markup:
    # Of texts, only tips are in it, and those are escaped.
    return Markup(  # noqa: S704
        f'<svg class="{css}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-hidden="true">'
        f"{content}</svg>"
    )
