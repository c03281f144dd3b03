"""Figures of a replay: how long each unit was throttled in each scenario, how long bytes waited, how much passed."""

from dataclasses import dataclass

import numpy as np

from analysis.kernel import histogram
from analysis.kernel.arrays import Bools, Floats, Indices
from analysis.kernel.demand import Demand
from analysis.kernel.histogram import BINS
from analysis.kernel.replay import Columns, Left, Slab, replay
from quotas.rate import Window


@dataclass(frozen=True, slots=True)
class Outcome:
    """Each [scenario, unit], the histograms [scenario, unit, bin of ``histogram``] with bytes as weights."""

    sent_bytes: Floats
    waiting_bytes: Floats
    """At the end. Demand = sent + waiting."""
    peak_waiting_bytes: Floats
    active_s: Floats
    """Seconds with demand, or in which something waited, or throttled."""
    throttled_s: Floats
    throttled_most_s: Floats
    """The same, and until the last throttle time given is over, though nothing more was wanted: an upper bound."""
    episodes: Floats
    """How often a throttle began, after a second without one."""
    throttles: Floats
    """Throttle times that requests are given."""
    delays: Floats
    """How long bytes wait until they are sent: for their own throttle and all those before them."""

    @property
    def ever_throttled(self) -> Bools:
        return self.throttled_s > 0

    def throttle_s(self, share: float) -> Floats:
        """Return the throttle time that ``share`` of the bytes is not above, 0.99 for the p99."""
        return histogram.quantile_s(self.throttles, share)

    def delay_s(self, share: float) -> Floats:
        """Return the wait that ``share`` of the bytes is not above."""
        return histogram.quantile_s(self.delays, share)


def outcome(demand: Demand, limits: Floats, window: Window) -> Outcome:
    """Return what ``demand`` meets under ``limits`` [scenario, unit]; what waits at the end leaves after it."""
    figures = _Figures(demand, limits.shape)
    return figures.outcome(replay(demand, limits, window, figures.add))


class _Figures:
    """Adds up slabs. Columns that never go through the loop pass as they come."""

    def __init__(self, demand: Demand, shape: tuple[int, ...]) -> None:
        self._demand = demand
        self._throttled_s, self._anyway_s, self._episodes, self._peak_waiting = np.zeros((4, *shape))
        self._goes_on = np.zeros(shape, dtype=bool)
        """Throttled in the last second that was seen."""
        self._muted_s, self._muted_until_s, self._seen_until_s = np.zeros((3, *shape))
        """How long the throttle times given have held beyond throttled seconds; how far they reach; and is counted."""
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

    def outcome(self, left: Left) -> Outcome:
        """Return the figures; ``left`` is what waits at the end."""
        shape = self._throttled_s.shape
        self._pass(Columns(*np.indices(shape).reshape(2, -1)), self._demand.seconds)
        waiting = np.zeros(shape)
        waiting[left.columns.at] = left.waiting_bytes
        self._weigh(self._delays, left.columns, *left.delays)
        total = np.broadcast_to(self._demand.total_bytes, shape)
        sent = total - waiting
        for weighed, weight in ((self._throttles, sent), (self._delays, total)):
            weighed[..., 0] += np.maximum(weight - weighed.sum(axis=-1), 0)  # the others are not delayed at all
        return Outcome(
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
        """Count the seconds until then in which columns were not in the loop, and muted all the same."""
        at = columns.at
        muted_s = np.ceil(np.minimum(self._muted_until_s[at], until) - self._seen_until_s[at])
        self._muted_s[at] += np.maximum(muted_s, 0)

    @staticmethod
    def _weigh(histograms: Floats, columns: Columns, column: Indices, times_s: Floats, weights: Floats) -> None:
        units = histograms.shape[1]
        flat = histograms.reshape(-1, BINS)
        histogram.add(flat, columns.scenario[column] * units + columns.unit[column], times_s, weights)
