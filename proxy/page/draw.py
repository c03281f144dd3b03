"""Plots as inline SVG without text: they stretch with the page. Colours are classes of ``page.css``."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

_HEIGHT: Final = 24
MINUTES: Final = 60


def bar(ratio: float | None) -> Markup:
    """Draw how much of a limit is used."""
    ratio = ratio or 0.0
    heat = "hot" if ratio > 1 else "warm" if ratio >= 0.8 else "cool"
    drawn = f'<rect class="rail" width="100" height="6"/><rect class="{heat}" width="{_up_to(100, ratio)}" height="6"/>'
    return _svg("bar", 100, 6, drawn)


def hour(values: Sequence[float | None], throttled: Sequence[float | None], limit: float | None = None) -> Markup:
    """Draw one value a minute, the latest at the right edge; below it the minutes with throttles, by their share.

    ``limit`` is drawn as a line. The scale reaches to the maximum, and always to the limit.
    """
    top = max([limit or 0.0, *(value for value in values if value is not None)]) * 1.1 or 1.0
    first = MINUTES - len(values)
    line, pen = "", "M"
    for x, value in enumerate(values, first):
        if value is None:
            pen = "M"
        else:
            line, pen = f"{line}{pen}{x} {_y(value, top)}H{x + 1}", "L"
    drawn = f'<path class="line" d="{line}"/>' if line else ""
    for x, share in enumerate(throttled, first):
        if share:
            height = max(1.0, _up_to(5, share))
            drawn += f'<rect class="hot" x="{x}" y="{_HEIGHT - height}" width="1" height="{height}"/>'
    if limit is not None:
        drawn += f'<path class="limit" d="M0 {_y(limit, top)}H{MINUTES}"/>'
    return _svg("hour", MINUTES, _HEIGHT, drawn)


def _y(value: float, top: float) -> float:
    return round((_HEIGHT - 1) * (1 - value / top), 1)


def _up_to(most: float, share: float) -> float:
    return round(most * min(share, 1.0), 1)


def _svg(css: str, width: int, height: int, drawn: str) -> Markup:
    # Only numbers and our own class names are in it.
    return Markup(  # noqa: S704
        f'<svg class="{css}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
    )
