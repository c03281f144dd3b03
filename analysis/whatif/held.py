"""What is computed of counters that hold up, before and after: from recordings and replays to rows of FIGURES."""

from typing import Final

import numpy as np
import pyarrow as pa

from analysis.kernel import histogram
from analysis.kernel.censoring import Known, throttled_bounds_s
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.outcome import Outcome
from analysis.kernel.series import Recorded
from analysis.replay.gathering import Throttles
from analysis.whatif.figures import ANSWERS, FIGURES, NO, POSSIBLY, SHARES, YES

_HISTOGRAMS: Final = 4096
"""Made at once."""


def after(low: Outcome, high: Outcome, known: Known, limits: Floats, in_force: Floats, holds: Floats) -> Floats:
    """Return [figure of answer and AFTER, scenario, unit] of the replays of demand at least and at most.

    ``in_force`` are [2, unit] the limits while recorded (``censoring.throttled_bounds_s``); ``holds`` is which unit
    would hold each for longest, if any did.
    """
    least_s, most_s = low.throttled_s, low.throttled_s
    if high is not low:
        least_s, most_s = throttled_bounds_s(known, low, high, limits, in_force)
    verdict = np.where(low.ever_throttled, YES, np.where(high.ever_throttled, POSSIBLY, NO))
    answer = np.broadcast_to([float(ANSWERS.index(each)) for each in known.answers], verdict.shape)
    figures = [
        *(answer, low.throttled_s, least_s, most_s, low.episodes),
        *(low.throttle_s(share) for share in SHARES.values()),
        *(low.delay_s(share) for share in SHARES.values()),
        np.maximum(low.delay_s(SHARES["p99"]), high.delay_s(SHARES["p99"])),
        *(low.sent_bytes, low.waiting_bytes, low.peak_waiting_bytes, verdict),
        np.where(verdict == NO, 0.0, holds + 1),
    ]
    return np.array(figures, dtype=float)


def batch(units: Indices, of_before: Floats, of_after: Floats) -> pa.RecordBatch:
    """Return ``scenario``, ``unit`` and FIGURES."""
    shape = of_after.shape[1:]
    scenario, unit = np.broadcast_arrays(np.arange(shape[0])[:, None], units)
    columns = [*(np.broadcast_to(each, shape) for each in of_before), *of_after]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(scenario.ravel(), pa.int32()),
            pa.array(unit.ravel(), pa.int32()),
            *(pa.array(np.ravel(column), pa.float64()) for column in columns),
        ],
        names=["scenario", "unit", *FIGURES],
    )


def before(recorded: Recorded, throttles: Throttles) -> Floats:
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
            *_quantiles_s(throttles, recorded.requests),
        ],
        dtype=float,
    )


def _quantiles_s(throttles: Throttles, requests: Floats) -> Floats:
    """Return [quantile, unit] of the throttle times that requests were given, 0 for most of them."""
    found = np.zeros((len(SHARES), len(requests)))
    throttled, column = np.unique(throttles.unit, return_inverse=True)
    order = np.argsort(column, kind="stable")
    ends = np.searchsorted(column[order], np.arange(len(throttled) + 1))
    for at in range(0, len(throttled), _HISTOGRAMS):
        units = throttled[at : at + _HISTOGRAMS]
        part = order[ends[at] : ends[at + len(units)]]
        counted = np.zeros((len(units), histogram.BINS))
        histogram.add(counted, column[part] - at, throttles.throttle_s[part], throttles.requests[part])
        counted[:, 0] += np.maximum(requests[units] - counted.sum(axis=1), 0)
        found[:, units] = [histogram.quantile_s(counted, share) for share in SHARES.values()]
    return found
