"""What a replay found: of each scenario and unit how much passed, how long it was throttled, how long bytes waited."""

from dataclasses import dataclass

import numpy as np

from analysis.kernel import histogram
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import BINS, Floats


@dataclass(frozen=True, slots=True)
class Carry:
    """Where a replay stopped, for the period that follows at once."""

    tail_bytes: Floats
    """[second, unit]: the demand of the last seconds, from the oldest of which something may still wait.

    It goes back two hours at most: delays beyond are found to be so long, and not longer.
    """
    waiting_bytes: Floats
    """[scenario, unit]."""
    recent_bytes: Floats
    """[second, scenario, unit]: what was sent in the last seconds, which the window still holds."""
    muted_s: Floats
    """[scenario, unit]: how far the throttle times given reach into the period that follows."""

    @classmethod
    def nothing(cls, units: int, history: int, shape: tuple[int, ...]) -> "Carry":
        """Return the carry of a period in which nobody did anything."""
        return cls(np.zeros((0, units)), np.zeros(shape), np.zeros((history, *shape)), np.zeros(shape))

    @property
    def is_quiet(self) -> bool:
        """Whether what follows does not depend on it."""
        return not (self.waiting_bytes.any() or self.recent_bytes.any() or self.muted_s.any())


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The course of a replay, each [second, scenario, unit]."""

    sent_bytes: Floats
    waiting_bytes: Floats
    throttle_s: Floats


@dataclass(frozen=True, slots=True)
class Outcome:
    """Each [scenario, unit], the histograms [scenario, unit, bin of ``histogram``] with bytes as weights."""

    seconds: int
    demand_bytes: Floats
    sent_bytes: Floats
    waiting_bytes: Floats
    """What waited at the end. demand + carried over = sent + waiting."""
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
    carry: Carry
    series: StepSeries | None = None

    @property
    def ever_throttled(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return self.throttled_s > 0

    @property
    def throttled_share(self) -> Floats:
        """Of the active time; 0 where there is none."""
        return np.divide(self.throttled_s, self.active_s, out=np.zeros_like(self.active_s), where=self.active_s > 0)

    def throttle_s(self, share: float) -> Floats:
        """Return the throttle time that ``share`` of the bytes is not above, 0.99 for the p99."""
        return histogram.quantile_s(self.throttles, share)

    def delay_s(self, share: float) -> Floats:
        """Return the wait that ``share`` of the bytes is not above."""
        return histogram.quantile_s(self.delays, share)

    def then(self, later: "Outcome") -> "Outcome":
        """Return the outcome of both periods, of which ``later`` was replayed with the carry of this one."""
        return Outcome(
            self.seconds + later.seconds,
            self.demand_bytes + later.demand_bytes,
            self.sent_bytes + later.sent_bytes,
            later.waiting_bytes,
            np.maximum(self.peak_waiting_bytes, later.peak_waiting_bytes),
            self.active_s + later.active_s,
            self.throttled_s + later.throttled_s,
            self.throttled_most_s + later.throttled_most_s,
            self.episodes + later.episodes,
            self.throttles + later.throttles,
            self.delays + later.delays,
            later.carry,
        )


def put(everywhere: Floats, at: tuple[Indices, Indices], values: Floats) -> Floats:
    """Return [scenario, unit] with ``values`` at some of them."""
    full = np.array(everywhere, dtype=float)
    full[at] = values
    return full


def weighed(total: Floats, at: tuple[Indices, Indices], counted: Floats, weight: Floats) -> Floats:
    """Return the histograms of all, in which what was not counted is not delayed at all."""
    full = np.zeros((*total.shape, BINS))
    full[..., 0] = total
    full[at] = counted
    full[(*at, 0)] += np.maximum(weight - counted.sum(axis=-1), 0)
    return full
