"""What a worker does with the counters that it has got: it looks for the smallest quotas that meet a target."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.kernel.cells import Cells
from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.refusals import Refusals, Rows, connections, mutations
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
        burst_s = self.window.keep_ms / 1000
        # In any time, a bucket lets through its burst and what comes meanwhile.
        surge = _surge(demand, self.window.keep_ms)
        active_s = _active_s(rows)

        def met(limit: float) -> bool:
            return self._met(mutations(demand, limit, self.window, self.seconds * 1000), active_s)

        yield _found(unit, rows, _least(met, rows, self.seconds, surge / burst_s), surge / burst_s, answer)

    def _met(self, found: Refusals, active_s: float) -> bool:
        """Throttle times and delays of a bucket are the same."""
        target = self.target
        if target.measure is Measure.SHARE:
            return _is_seldom(found, target.most, active_s)
        return found.share_above(target.most) <= 1 - target.share


@dataclass(frozen=True, slots=True)
class ConnectionSearchWork:
    """The same of one address, whose attempts beyond the limit are refused.

    However short a refused one was held, it failed: a target about times is met where no more than its share are
    refused. Who was refused while recorded came again, or did not: all attempts are demand.
    """

    window: Window
    target: Target
    seconds: int

    def __call__(self, unit: int, rows: Rows, refused: Floats) -> Iterator[pa.RecordBatch]:
        answer = Answer.INTERVAL if refused.any() else Answer.EXACT
        active_s = _active_s(rows)
        most = float(enough(np.array([_surge(rows, round(1000 * surge_window_s(self.window)))]), self.window)[0])

        def met(limit: float) -> bool:
            return self._met(connections(rows, limit, self.window, self.seconds * 1000), active_s)

        window_s = self.window.keep_ms / 1000
        yield _found(
            unit, rows, _least(met, rows, self.seconds, most), _surge(rows, self.window.keep_ms) / window_s, answer
        )

    def _met(self, found: Refusals, active_s: float) -> bool:
        if self.target.measure is Measure.SHARE:
            return _is_seldom(found, self.target.most, active_s)
        return found.asked - found.passed <= (1 - self.target.share) * found.asked


def _is_seldom(found: Refusals, share: float, active_s: float) -> bool:
    throttled_s = found.throttled_ms / 1000
    return throttled_s < share * max(active_s, throttled_s)


def _active_s(rows: Rows) -> float:
    return float(rows.interval_ms[rows.amount > 0].sum()) / 1000


def _least(met: Callable[[float], bool], rows: Rows, seconds: int, most: float) -> float:
    """Return the least limit that does, of one unit; ``most`` is known to."""
    total = float(rows.amount.sum())
    if not total:
        return 0.0

    def each(tried: Floats, _: Indices) -> Any:
        return np.array([[met(float(limit))] for limit in tried[:, 0]])

    return float(least_that(each, np.array([total / seconds]), np.array([most]))[0])


def _found(unit: int, rows: Rows, needed: float, surge: float, answer: Answer) -> pa.RecordBatch:
    """Return the row of FIGURES of one unit."""
    used = rows.amount > 0
    rates = rows.amount / (rows.interval_ms / 1000)
    p99 = float(np.quantile(rates[used], 0.99, method="inverted_cdf")) if used.any() else 0.0
    figures = (needed, p99, float(rates.max(initial=0.0)), surge, _active_s(rows), ANSWERS.index(answer))
    columns = [pa.array([unit], pa.int32()), *(pa.array([float(each)], pa.float64()) for each in figures)]
    return pa.RecordBatch.from_arrays(columns, names=["unit", *FIGURES])


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
