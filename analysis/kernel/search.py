"""The smallest quota for each unit that meets a target."""

from collections.abc import Callable
from typing import Final

import numpy as np

from analysis.kernel.demand import Bools, Demand, Indices, surge_bytes
from analysis.kernel.fluid import Bounds, replay
from analysis.kernel.histogram import Floats
from analysis.kernel.target import Target
from quotas.rate import Window

SCALES: Final = 8
"""How many quotas are tried in one pass: the block is as wide, and costs three times as much as one."""
_RESOLUTION: Final = 1.02


def smallest(
    demand: Demand,
    target: Target,
    window: Window = Window(),  # noqa: B008  frozen
    *,
    bounds: Bounds = Bounds(),  # noqa: B008  frozen
) -> Floats:
    """Return the smallest quota [unit] under which ``demand`` meets ``target``, to 2 %, from above.

    Give it the demand at most (``Censored.high``). Never below the mean rate, under which a backlog only grows; 0
    for a unit without demand.
    """
    total = demand.sent_bytes.sum(axis=0)
    found = np.zeros(len(total))
    wanted = np.flatnonzero(total)
    if not len(wanted):
        return found
    demand = demand.only(wanted)

    def met(tried: Floats, units: Indices) -> Bools:
        return target.met(replay(demand.only(units), tried, window, bounds=bounds), window)

    high = enough(surge_bytes(demand.sent_bytes, surge_window_s(window)), window)
    found[wanted] = least_that(met, total[wanted] / len(demand.sent_bytes), high)
    return found


def least_that(met: Callable[[Floats, Indices], Bools], low: Floats, high: Floats) -> Floats:
    """Return the smallest quota [unit] between ``low`` and ``high`` that does, to 2 %, from above.

    ``met`` says of quotas [scenario, one of some units], ``SCALES`` of them at once and ascending, which do, and from
    which on all do: what it says of those below one that does not is not asked for. Those of ``high`` are known to.
    What is found for a unit does not depend on which others there are.
    """
    low, high = np.minimum(low, high), high.copy()
    parts = np.arange(SCALES) / SCALES  # the low end itself may do, once
    while len(units := np.flatnonzero(high > low * _RESOLUTION)):
        lowest, highest = low[units], high[units]
        tried = lowest * (highest / lowest) ** parts[:, None]
        # All from there on must meet it: a quota that is met by chance below one that is not is not trusted.
        fails = SCALES - np.logical_and.accumulate(met(tried, units)[::-1]).sum(axis=0)
        unit = np.arange(len(units))
        low[units] = np.concatenate((lowest[None], tried))[fails, unit]
        high[units] = np.concatenate((tried, highest[None]))[fails, unit]
        parts = np.arange(1, SCALES + 1) / (SCALES + 1)
    return high


def surge_window_s(window: Window) -> float:
    """Return how long the bytes of a surge can count together, wherever samples begin."""
    return (window.keep_ms + window.size_ms) / 1000


def enough(surge: Floats, window: Window) -> Floats:
    """Return quotas under which nobody is ever throttled, from the most bytes in any ``surge_window_s``.

    Kafka divides by N - 1 samples at least.
    """
    sample_s = window.size_ms / 1000
    return np.asarray(surge / max(window.keep_ms / 1000 - sample_s, sample_s))
