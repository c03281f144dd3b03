"""Figures of counters under proposed quotas, before and after, made in a worker."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.demand.gathering import Gathered
from analysis.kernel.censoring import Answer, Known, throttled_bounds_s
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.series import Recorded
from analysis.kernel.stretch import Stretch, stretches
from quotas.rate import Window

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BEFORE: Final = ("active_s", "before_throttled_s", "before_episodes")
AFTER: Final = (
    *("throttled_s", "throttled_least_s", "throttled_most_s", "episodes"),
    *(f"throttle_{name}_s" for name in SHARES),
    *(f"delay_{name}_s" for name in SHARES),
    *("delay_p99_most_s", "sent_bytes", "waiting_bytes", "peak_waiting_bytes"),
)
FIGURES: Final = (*BEFORE, *AFTER, "answer", "verdict")
"""In the order in which workers return them; an answer and a verdict by their numbers."""
SCHEMA: Final = ", ".join(["unit INT", *(f"{name} DOUBLE" for name in FIGURES)])
ANSWERS: Final = tuple(Answer)
NO, POSSIBLY, YES = range(3)
VERDICTS: Final = ("no", "possibly", "yes")
"""Whether a unit would be throttled; possibly: if it wanted as much as could be while it was held up."""


@dataclass(frozen=True, slots=True)
class Replaying:
    """Replays the units of one task: a row of FIGURES for each."""

    window: Window
    limits: Floats
    """[unit]."""
    recorded_limits: Floats
    """[2, unit]: the least and the highest."""

    def __call__(self, gathered: Gathered) -> pa.Table:
        recorded, limits = gathered.recorded, self.limits[gathered.units]
        figures = np.zeros((len(FIGURES), len(limits)))
        figures[: len(BEFORE)] = _before(recorded)
        figures[FIGURES.index("sent_bytes")] = recorded.low.sums(recorded.low.sent_bytes, len(limits))
        window_s = self.window.keep_ms / 1000
        over = recorded.low.surge_bytes(len(limits), window_s) > limits * window_s
        # Apart: demand at most is replayed for those alone that were held up.
        for units in (np.flatnonzero(over & ~recorded.censored), np.flatnonzero(recorded.censored)):
            for stretch in stretches(recorded, units, 1):
                figures[len(BEFORE) :, stretch.units] = self._after(gathered, stretch)
        columns = [pa.array(gathered.units, pa.int32()), *map(pa.array, figures)]
        return pa.table(columns, names=["unit", *FIGURES])

    def _after(self, gathered: Gathered, stretch: Stretch) -> Floats:
        """Return [figure of AFTER, answer and verdict, unit]."""
        units = gathered.units[stretch.units]
        limits = self.limits[units][None]
        low = stretch.replay(limits, self.window)
        high, least_s, most_s = low, low.throttled_s, low.throttled_s
        known = _known(gathered.recorded, stretch.units)
        if stretch.censored:
            high = stretch.replay(limits, self.window, high=True)
            least_s, most_s = throttled_bounds_s(known, low, high, limits, self.recorded_limits[:, units])
        figures = [
            *(low.throttled_s, least_s, most_s, low.episodes),
            *(low.throttle_s(share) for share in SHARES.values()),
            *(low.delay_s(share) for share in SHARES.values()),
            np.maximum(low.delay_s(SHARES["p99"]), high.delay_s(SHARES["p99"])),
            *(low.sent_bytes, low.waiting_bytes, low.peak_waiting_bytes),
            np.array([[ANSWERS.index(each) for each in known.answers]]),
            np.where(low.ever_throttled, YES, np.where(high.ever_throttled, POSSIBLY, NO)),
        ]
        return np.array([each[0] for each in figures], dtype=float)


def _known(recorded: Recorded, units: Indices) -> Known:
    muted_s = recorded.low.sums(recorded.low.muted_s, len(recorded.answers))[units]
    return Known(tuple(recorded.answers[unit] for unit in units.tolist()), muted_s)


def _before(recorded: Recorded) -> Floats:
    """Return [figure of BEFORE, unit]."""
    cells = recorded.low
    units = len(recorded.answers)
    muted = cells.muted_s > 0
    used = muted | (cells.sent_bytes > 0)
    goes_on = np.zeros(len(muted), dtype=bool)
    goes_on[1:] = muted[:-1] & (np.diff(cells.number) == 0) & (np.diff(cells.second) == 1)
    return np.array(
        [
            np.bincount(cells.number[used], minlength=units),
            cells.sums(cells.muted_s, units),
            np.bincount(cells.number[muted & ~goes_on], minlength=units),
        ],
        dtype=float,
    )
