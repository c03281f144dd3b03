"""Figures of a replay: throttled time, delays and bytes sent, of each unit in each scenario."""

from dataclasses import dataclass

import numpy as np

from analysis.kernel import histogram
from analysis.kernel.arrays import Bools, Floats, Indices
from analysis.kernel.demand import Demand
from analysis.kernel.histogram import BINS
from analysis.kernel.replay import Columns, Left, Slab, replay
from quotas.rate import Window


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Arrays [scenario, unit]; histograms [scenario, unit, bin], weighted by bytes."""

    sent_bytes: Floats
    waiting_bytes: Floats
    """Bytes that wait at the end. Demand = sent + waiting."""
    peak_waiting_bytes: Floats
    active_s: Floats
    """Seconds with demand, waiting bytes or a throttle."""
    throttled_s: Floats
    throttled_most_s: Floats
    """With the rest of throttle times after the demand has ended: an upper bound."""
    episodes: Floats
    """The number of throttles that begin after a second without one."""
    throttles: Floats
    """Throttle times of requests."""
    delays: Floats
    """The delay of bytes until they are sent, by their own throttle and those before it."""

    @property
    def ever_throttled(self) -> Bools:
        return self.throttled_s > 0

    def throttle_s(self, share: float) -> Floats:
        """Return a quantile of throttle times, 0.99 for the p99."""
        return histogram.quantile_s(self.throttles, share)

    def delay_s(self, share: float) -> Floats:
        """Return a quantile of delays."""
        return histogram.quantile_s(self.delays, share)


def outcome(demand: Demand, limits: Floats, window: Window) -> ReplayResult:
    """Replay ``demand`` under ``limits`` [scenario, unit]."""
    figures = _Figures(demand, limits.shape)
    return figures.outcome(replay(demand, limits, window, figures.add))


class _Figures:
    """Adds up the figures of slabs. Columns outside of the loop are not delayed."""

    def __init__(self, demand: Demand, shape: tuple[int, ...]) -> None:
        self._demand = demand
        self._throttled_s, self._anyway_s, self._episodes, self._peak_waiting = np.zeros((4, *shape))
        self._goes_on = np.zeros(shape, dtype=bool)
        """Whether the unit was throttled in the last second of the last slab."""
        self._muted_s, self._muted_until_s, self._seen_until_s = np.zeros((3, *shape))
        """Seconds of throttle times beyond throttled seconds; end of the latest throttle time; end of counting."""
        self._throttles, self._delays = np.zeros((2, *shape, BINS))

    def add(self, slab: Slab) -> Bools:
        at, throttled, seconds = slab.columns.at, slab.throttled, len(slab.sent_bytes)
        self._throttled_s[at] += throttled.sum(axis=0)
        self._anyway_s[at] += slab.active_anyway.sum(axis=0)
        self._episodes[at] += (throttled & ~np.concatenate((self._goes_on[at][None], throttled[:-1]))).sum(axis=0)
        self._goes_on[at] = throttled[-1]
        self._peak_waiting[at] = np.maximum(self._peak_waiting[at], slab.waiting_bytes[1:].max(axis=0))
        throttle_s = slab.throttle_s()
        self._pass(slab.columns, slab.start)
        second = slab.start + np.arange(seconds)[:, None]
        until_s = np.concatenate((self._muted_until_s[at][None], np.where(throttled, second + throttle_s, 0)))
        np.maximum.accumulate(until_s, axis=0, out=until_s)
        self._muted_s[at] += (~throttled & (until_s[:-1] > second)).sum(axis=0)
        self._muted_until_s[at] = until_s[-1]
        self._seen_until_s[at] = slab.start + seconds
        row, column = np.nonzero(throttled)
        self._weigh(self._throttles, slab.columns, column, throttle_s[row, column], slab.sent_bytes[row, column])
        self._weigh(self._delays, slab.columns, *slab.delays())
        return np.ones(len(slab.columns.unit), dtype=bool)

    def outcome(self, left: Left) -> ReplayResult:
        """Return the figures; ``left`` has the bytes that wait at the end."""
        shape = self._throttled_s.shape
        self._pass(Columns(*np.indices(shape).reshape(2, -1)), self._demand.seconds)
        waiting = np.zeros(shape)
        waiting[left.columns.at] = left.waiting_bytes
        self._weigh(self._delays, left.columns, *left.delays)
        total = np.broadcast_to(self._demand.total_bytes, shape)
        sent = total - waiting
        for weighed, weight in ((self._throttles, sent), (self._delays, total)):
            weighed[..., 0] += np.maximum(weight - weighed.sum(axis=-1), 0)  # all other bytes are not delayed
        return ReplayResult(
            sent_bytes=sent,
            waiting_bytes=waiting,
            peak_waiting_bytes=self._peak_waiting,
            active_s=self._demand.active_s + self._anyway_s,
            throttled_s=self._throttled_s,
            throttled_most_s=self._throttled_s + self._muted_s,
            episodes=self._episodes,
            throttles=self._throttles,
            delays=self._delays,
        )

    def _pass(self, columns: Columns, until: int) -> None:
        """Count muted seconds outside of the loop, until the given second."""
        at = columns.at
        muted_s = np.ceil(np.minimum(self._muted_until_s[at], until) - self._seen_until_s[at])
        self._muted_s[at] += np.maximum(muted_s, 0)

    @staticmethod
    def _weigh(histograms: Floats, columns: Columns, column: Indices, times_s: Floats, weights: Floats) -> None:
        units = histograms.shape[1]
        flat = histograms.reshape(-1, BINS)
        histogram.add(flat, columns.scenario[column] * units + columns.unit[column], times_s, weights)
