"""What a worker does with the counters that it has got: it looks for the smallest quotas that meet a target."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.kernel.cells import Cells
from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.refusals import Refusals, Rows, mutations
from analysis.kernel.search import enough, least_that, surge_window_s
from analysis.kernel.target import Measure, Target
from analysis.kernel.trial import UNITS, Trial
from analysis.replay.gathering import Gathered
from quotas.rate import Window

FIGURES: Final = ("needed", "p99", "most", "surge", "active_s", "answer")
"""What is found of each unit: rates in the unit of the limit per second, and the number of its answer in ANSWERS."""
ANSWERS: Final = tuple(Answer)


@dataclass(frozen=True, slots=True)
class SearchWork:
    """What a worker does with the units that it has got: a row of FIGURES for each ``unit``."""

    window: Window
    target: Target

    def __call__(self, gathered: Gathered) -> Iterator[pa.RecordBatch]:
        recorded = gathered.recorded
        units = len(gathered.units)
        high = enough(recorded.high.surge_bytes(units, surge_window_s(self.window)), self.window)
        mean = recorded.low.sums(recorded.low.sent_bytes, units) / recorded.seconds
        # Who used nothing needs nothing; beside huge values, the sums of others are lost, and say the same.
        used = np.flatnonzero(high > 0)
        needed = np.zeros(units)
        for at in range(0, len(used), UNITS):
            part = used[at : at + UNITS]
            needed[part] = least_that(Trial(recorded, part, self.target, self.window).met, mean[part], high[part])
        window_s = self.window.keep_ms / 1000
        figures = (
            needed,
            *_rates(recorded.low, units),
            recorded.low.surge_bytes(units, window_s) / window_s,
            recorded.low.sums((recorded.low.sent_bytes > 0).astype(float), units),
            np.array([ANSWERS.index(answer) for answer in recorded.answers], dtype=float),
        )
        columns = [pa.array(gathered.units, pa.int32()), *(pa.array(each, pa.float64()) for each in figures)]
        yield pa.RecordBatch.from_arrays(columns, names=["unit", *FIGURES])


@dataclass(frozen=True, slots=True)
class BucketSearchWork:
    """The same of one unit whose limit is a token bucket."""

    window: Window
    target: Target
    seconds: int

    def __call__(self, unit: int, rows: Rows, refused: Floats) -> Iterator[pa.RecordBatch]:
        answer = Answer.EXACT
        if rows.muted_ms.any() or refused.any():
            answer = Answer.UNKNOWN if rows.held_at_the_end else Answer.INTERVAL
        demand = rows.earliest()
        total = float(rows.amount.sum())
        burst_s = self.window.keep_ms / 1000
        # In any time, a bucket lets through its burst and what comes meanwhile.
        surge = _surge(demand, self.window.keep_ms)

        def met(tried: Floats, _: Indices) -> Any:
            found = [mutations(demand, float(limit), self.window, self.seconds * 1000) for limit in tried[:, 0]]
            return np.array([[self._met(each, active_s)] for each in found])

        used = rows.amount > 0
        active_s = float(rows.interval_ms[used].sum()) / 1000
        needed = least_that(met, np.array([total / self.seconds]), np.array([surge / burst_s]))[0] if total else 0.0
        rates = rows.amount / (rows.interval_ms / 1000)
        p99 = float(np.quantile(rates[used], 0.99, method="inverted_cdf")) if used.any() else 0.0
        figures = (needed, p99, float(rates.max(initial=0.0)), surge / burst_s, active_s, ANSWERS.index(answer))
        columns = [pa.array([unit], pa.int32()), *(pa.array([float(each)], pa.float64()) for each in figures)]
        yield pa.RecordBatch.from_arrays(columns, names=["unit", *FIGURES])

    def _met(self, found: Refusals, active_s: float) -> bool:
        """Throttle times and delays of a bucket are the same."""
        target = self.target
        if target.measure is Measure.SHARE:
            throttled_s = found.throttled_ms / 1000
            return throttled_s < target.most * max(active_s, throttled_s)
        return found.share_above(target.most) <= 1 - target.share


def _surge(rows: Rows, window_ms: int) -> float:
    """Return the most that came in intervals which begin within a window."""
    total = np.concatenate(([0.0], np.cumsum(rows.amount)))
    since = np.searchsorted(rows.begin_ms, rows.begin_ms - window_ms - rows.interval_ms)
    return float((total[1:] - total[since]).max(initial=0.0))


def _rates(cells: Cells, units: int) -> tuple[Floats, Floats]:
    """Return the p99 of the seconds with use, and the most, of each unit."""
    order = np.lexsort((cells.sent_bytes, cells.number))
    sent = cells.sent_bytes[order]
    starts = cells.starts(units)
    count = np.diff(starts)
    last = np.maximum(starts[1:] - 1, 0)
    rank = np.maximum(np.ceil(0.99 * count).astype(np.intp) - 1, 0)
    p99 = sent[np.minimum(starts[:-1] + rank, len(sent) - 1)]
    return np.where(count > 0, p99, 0), np.where(count > 0, sent[last], 0)
