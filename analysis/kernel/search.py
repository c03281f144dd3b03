"""The search for the smallest quota of each unit that meets a target; each pass of the replay tries several quotas.

Only the target's measure is counted. A unit leaves the replay once it has failed; a quota that fails rules out all
lower ones.
"""

from typing import Final

import numpy as np

from analysis.kernel.arrays import Bools, Floats, Indices
from analysis.kernel.censoring import Recorded
from analysis.kernel.demand import Demand
from analysis.kernel.replay import Left, Slab, replay
from analysis.kernel.target import Measure, Target
from quotas.rate import Window

_SCALES: Final = 8
"""The quotas tried in one pass, which costs three times as much as for one."""
_RESOLUTION: Final = 1.02
_UNITS: Final = 8192
"""The units searched at once."""


def smallest(recorded: Recorded, target: Target, window: Window) -> Floats:
    """Return [unit] the smallest quota under which the upper bound of demand meets ``target``, to 2 %, from above.

    Never below the mean rate, at which a backlog only grows; 0 for a unit without demand.
    """
    demand = recorded.high
    mean = recorded.low.total_bytes / demand.seconds
    # The window may reach one sample further back, by the time at which samples begin.
    high = enough(demand.cells.surge_bytes(demand.units, (window.keep_ms + window.size_ms) / 1000), window)
    # Units without use need nothing, nor those whose use is lost in rounding beside huge values.
    used = np.flatnonzero(high > 0)
    found = np.zeros(demand.units)
    for at in range(0, len(used), _UNITS):
        part = used[at : at + _UNITS]
        found[part] = _smallest(demand.only(part), mean[part], high[part], target, window)
    return found


def enough(surge: Floats, window: Window) -> Floats:
    """Return quotas that never throttle, from the most bytes in any window: Kafka divides by N - 1 samples at least."""
    sample_s = window.size_ms / 1000
    return np.asarray(surge / max(window.keep_ms / 1000 - sample_s, sample_s))


def _smallest(demand: Demand, low: Floats, high: Floats, target: Target, window: Window) -> Floats:
    """Return [unit] the smallest quota between ``low`` and ``high``, which meets the target."""
    low, high = np.minimum(low, high), high.copy()
    parts = np.arange(_SCALES) / _SCALES  # the first pass also tries the low end
    while len(units := np.flatnonzero(high > low * _RESOLUTION)):
        lowest, highest = low[units], high[units]
        tried = lowest * (highest / lowest) ** parts[:, None]
        fails = _SCALES - meets(demand.only(units), tried, target, window).sum(axis=0)
        unit = np.arange(len(units))
        low[units] = np.concatenate((lowest[None], tried))[fails, unit]
        high[units] = np.concatenate((tried, highest[None]))[fails, unit]
        parts = np.arange(1, _SCALES + 1) / (_SCALES + 1)
    return high


def meets(demand: Demand, tried: Floats, target: Target, window: Window) -> Bools:
    """Return [scenario, unit] whether a quota and all higher ones meet the target; ``tried`` ascends by scenario."""
    count = _Count(demand, len(tried), target, window)
    return count.met(replay(demand, tried, window, count.add))


class _Count:
    """Counts violations of the target [scenario, unit]: throttled seconds, or bytes with longer times."""

    def __init__(self, demand: Demand, scenarios: int, target: Target, window: Window) -> None:
        self._target = target
        self._edge_s = target.edge_s(window)
        self._total = demand.total_bytes
        self._active_s = demand.active_s
        self._failed = np.zeros(demand.units, dtype=np.intp)
        """[unit] the number of scenarios, from the lowest, that are known to fail."""
        self._beyond, self._anyway_s = np.zeros((2, scenarios, demand.units))
        self._is_share = target.measure is Measure.SHARE
        self._allowed = target.most if self._is_share else 1 - target.share
        # With more violations the target is missed, whatever follows.
        self._most = self._allowed * (np.full(demand.units, float(demand.seconds)) if self._is_share else self._total)

    def add(self, slab: Slab) -> Bools:
        """Count a slab; return the columns that have not failed yet."""
        scenario, unit = at = slab.columns.at
        match self._target.measure:
            case Measure.SHARE:
                self._beyond[at] += slab.throttled.sum(axis=0)
                self._anyway_s[at] += slab.active_anyway.sum(axis=0)
            case Measure.THROTTLE:
                self._beyond[at] += (slab.sent_bytes * (slab.throttle_s() >= self._edge_s)).sum(axis=0)
            case Measure.DELAY:
                self._add_delays(at, slab.delays())
        beyond, most = self._beyond[at], self._most[unit]
        fails = beyond >= most if self._is_share else beyond > most
        np.maximum.at(self._failed, unit[fails], scenario[fails] + 1)
        return np.asarray(scenario >= self._failed[unit])

    def _add_delays(self, at: tuple[Indices, Indices], delays: tuple[Indices, Floats, Floats]) -> None:
        column, delay_s, weight = delays
        self._beyond[at] += np.bincount(column, weight * (delay_s >= self._edge_s), len(at[0]))

    def met(self, left: Left) -> Bools:
        """Return [scenario, unit] whether the target is met; ``left`` has the backlogs at the end."""
        weight = np.broadcast_to(self._total, self._beyond.shape).copy()
        match self._target.measure:
            case Measure.SHARE:
                active_s = self._active_s + self._anyway_s
                fails = (self._beyond >= self._allowed * active_s) & (self._beyond > 0)
            case Measure.THROTTLE:
                weight[left.columns.at] -= left.waiting_bytes
                fails = self._beyond > self._allowed * weight
            case Measure.DELAY:
                self._add_delays(left.columns.at, left.delays)
                fails = self._beyond > self._allowed * weight
        number = np.arange(1, len(fails) + 1)[:, None]
        return np.asarray(number > np.maximum(self._failed, (number * fails).max(axis=0)))
