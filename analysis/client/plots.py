"""How a counter went, as a plot: what the client used, what all on the counter did, and the limit as a line."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.client.courses import Course
from analysis.table.arrays import Floats

SMALL: Final = 180
"""Points of a small plot: as many as its pixels."""


def plot(course: Course, limits: Sequence[float | None], top: float, *, shared: bool, small: bool = False) -> str:
    """Draw a course; ``limits`` [step] are those in force, ``top`` is the value at the upper edge."""
    layers = [("s8", course.shared)] if shared else []
    layers += [("cool pale", course.most), ("cool", course.mean)]
    line = np.array([np.nan if each is None else each for each in limits])
    # Steps of a small plot stand for several: of the most the most, of means their mean.
    if small:
        layers = [(css, _fewer(values, np.max if "pale" in css else np.mean)) for css, values in layers]
    drawn = "".join(f'<path class="{css}" d="{_area(values, top)}"/>' for css, values in layers)
    least = course.least if not small else _fewer(course.least, np.min)
    count = len(layers[0][1])
    if least.max(initial=0.0) > 0:
        drawn += f'<path class="fit" d="{_stairs(least, top, 1.0)}"/>'
    drawn += f'<path class="limit" d="{_stairs(line, top, count / len(line))}"/>'
    css = "course" if small else "stack"
    return (
        f'<svg class="{css}" viewBox="0 0 {count} 100" preserveAspectRatio="none" role="img" aria-hidden="true">'
        f"{drawn}</svg>"
    )


def strip(muted: Sequence[float], most: int) -> list[float]:
    """Return the shares of time of at most so many steps, each the mean of several."""
    return [float(each) for each in _fewer(np.array(muted), np.mean, most)]


def _fewer(values: Floats, how: object, most: int = SMALL) -> Floats:
    if len(values) <= most:
        return values
    assert callable(how)  # noqa: S101  a function of NumPy
    return np.array([float(how(part)) for part in np.array_split(values, most)])


def _area(values: Floats, top: float) -> str:
    """Return the outline of stairs above the floor; equal steps are one."""
    path = ["M0 100"]
    for begin, end, value in _runs(values):
        path.append(f"V{_y(value, top)}H{end}" if begin or value else f"H{end}")
    return f"{''.join(path)}V100Z"


def _stairs(values: Floats, top: float, width: float) -> str:
    """Return a line of steps; where there is no value, none."""
    path = []
    drawing = False
    for begin, end, value in _runs(values):
        if np.isnan(value):
            drawing = False
            continue
        height = _y(value, top)
        path.append(f"V{height}" if drawing else f"M{begin * width:.6g} {height}")
        path.append(f"H{end * width:.6g}")
        drawing = True
    return "".join(path) or "M0 0"


def _runs(values: Floats) -> list[tuple[int, int, float]]:
    """Return (begin, end, value) of steps that are the same."""
    differs = np.ones(len(values), dtype=bool)
    differs[1:] = ~((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1])))
    begins = np.flatnonzero(differs)
    ends = [*begins[1:].tolist(), len(values)]
    return [(begin, end, float(values[begin])) for begin, end in zip(begins.tolist(), ends, strict=True)]


def _y(value: float, top: float) -> str:
    return f"{100 * (1 - min(max(value / top, 0), 1)):.4g}"
