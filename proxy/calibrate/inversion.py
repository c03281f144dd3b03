"""Infers the cost of a request from a broker's first throttle_time_ms: the inverse of QuotaUtils.throttleTime.

A broker whose client has used S seconds of thread time in a window of W seconds, with a limit of T, throttles it for S
/ T - W. So with the first throttle X of a fresh client-id after n requests, S = T * (W + X), and S / n is the cost. It
equals the broker's own JMX figure within 1 % (docs/request-percentage.md).
"""

from statistics import median
from typing import Final

from config.quotas import Window

BURST_SHARE: Final = 0.68
"""Cost in a burst / cost of a throttled client's requests: 0.62 on the machine of the table's measurements, 0.75 on
another one. Sparse requests cost more."""
LEAST: Final = 0.5
MOST: Final = 4.0
_EDGE_MS: Final = 20
"""Distance from the border of two samples within which the broker's W may differ from ours."""


def cost_us(percent: float, window: Window, took_ms: float, throttle_ms: int, requests: int) -> float | None:
    """Return the cost of each of ``requests``, which took ``took_ms`` until the first throttle.

    Returns None if the throttle was capped, or fell near the end of a sample.
    """
    beyond_ms = took_ms % window.size_ms
    if throttle_ms >= window.size_ms or took_ms >= window.size_ms * (window.samples - 1):
        return None
    if took_ms > _EDGE_MS and not _EDGE_MS < beyond_ms < window.size_ms - _EDGE_MS:
        return None
    window_ms = window.size_ms * (window.samples - 1) + beyond_ms
    return percent / 100 * (window_ms + throttle_ms) * 1000 / requests


def factor(ratios: list[float]) -> float:
    """Return the ``request_costs.scale`` that bursts ask for, each measured as a part of what the table says."""
    return min(max(median(ratios) / BURST_SHARE, LEAST), MOST)
