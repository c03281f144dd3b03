"""The replay of counters under proposed quotas in a Spark worker: figures before and after."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from analysis.kernel.arrays import Floats, Indices
from analysis.kernel.censoring import Answer, Recorded, throttled_bounds_s
from analysis.kernel.outcome import outcome
from quotas.rate import Window

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_BEFORE: Final = ("active_s", "before_throttled_s", "before_episodes")
_AFTER: Final = (
    *("throttled_s", "throttled_least_s", "throttled_most_s", "episodes"),
    *(f"throttle_{name}_s" for name in SHARES),
    *(f"delay_{name}_s" for name in SHARES),
    *("delay_p99_most_s", "sent_bytes", "waiting_bytes", "peak_waiting_bytes", "verdict"),
)
FIGURES: Final = (*_BEFORE, "answer", *_AFTER)
_TOGETHER: Final = 1024
"""Units replayed at once: their histograms take some 10 MB."""


class Verdict(IntEnum):
    """Whether a unit would be throttled."""

    NO = 0
    POSSIBLY = 1
    """Only if its demand was at its upper bound while it was held up."""
    YES = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Replay:
    """Replays the units of one task."""

    window: Window
    limits: Floats
    """[unit]."""
    in_force: Floats
    """[2, unit]: the least and the highest limit while recorded."""

    def __call__(self, units: Indices, recorded: Recorded) -> Floats:
        """Return [figure of FIGURES, one of ``units``]."""
        exact = recorded.answers == Answer.EXACT
        after = np.zeros((len(_AFTER), len(units)))
        # Only units that were held up have a second demand to replay, the upper bound.
        for alike in (np.flatnonzero(exact), np.flatnonzero(~exact)):
            for at in range(0, len(alike), _TOGETHER):
                part = alike[at : at + _TOGETHER]
                after[:, part] = self._after(units[part], recorded.only(part))
        return np.concatenate((_before(recorded), recorded.answers[None], after))

    def _after(self, units: Indices, recorded: Recorded) -> Floats:
        """Return [figure of _AFTER, unit]."""
        limits = self.limits[units][None]
        low = high = outcome(recorded.low, limits, self.window)
        if (recorded.answers != Answer.EXACT).any():
            high = outcome(recorded.high, limits, self.window)
        figures = [
            low.throttled_s,
            *throttled_bounds_s(recorded, low, high, limits, self.in_force[:, units]),
            low.episodes,
            *(low.throttle_s(share) for share in SHARES.values()),
            *(low.delay_s(share) for share in SHARES.values()),
            np.maximum(low.delay_s(SHARES["p99"]), high.delay_s(SHARES["p99"])),
            *(low.sent_bytes, low.waiting_bytes, low.peak_waiting_bytes),
            np.where(low.ever_throttled, Verdict.YES, np.where(high.ever_throttled, Verdict.POSSIBLY, Verdict.NO)),
        ]
        return np.array([each[0] for each in figures], dtype=float)


def _before(recorded: Recorded) -> Floats:
    """Return [figure of _BEFORE, unit]."""
    cells, units = recorded.low.cells, recorded.low.units
    muted = cells.muted_s > 0
    goes_on = np.zeros(len(muted), dtype=bool)
    goes_on[1:] = muted[:-1] & (np.diff(cells.number) == 0) & (np.diff(cells.second) == 1)
    used = muted | (cells.sent_bytes > 0)
    return np.array([cells.sums(used, units), recorded.muted_s, cells.sums(muted & ~goes_on, units)])
