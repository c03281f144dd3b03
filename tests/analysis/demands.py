"""Dense arrays of [second, unit] as the kernel takes them, and replays second by second."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel.arrays import Bools, Floats
from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.censoring import Recorded
from analysis.kernel.demand import Demand
from analysis.kernel.outcome import ReplayResult, outcome
from analysis.kernel.replay import Slab, replay
from quotas.rate import Window

REQUEST_BYTES = 10_000


def cells_of(sent: Floats, muted_s: Floats | None = None) -> Cells:
    """Return what rows of one second say of [second, series]."""
    second, series = np.nonzero(sent + (0 if muted_s is None else muted_s))
    muted = np.zeros(len(second)) if muted_s is None else muted_s[second, series] * 1000
    return Cells.of(SeriesRows(series, second * 1000, np.full(len(second), 1000), sent[second, series], muted))


def recorded_of(sent: ArrayLike, muted_s: ArrayLike | None = None, unit_of: list[int] | None = None) -> Recorded:
    """Return what is known of [second, series], in requests of 10 kB."""
    dense = np.asarray(sent, dtype=float)
    muted = None if muted_s is None else np.asarray(muted_s, dtype=float)
    units = np.arange(dense.shape[1]) if unit_of is None else np.array(unit_of, dtype=np.intp)
    requests: Floats = np.bincount(units, dense.sum(axis=0) / REQUEST_BYTES).astype(np.float64)
    return Recorded.of(cells_of(dense, muted), units, requests, len(dense))


def demand_of(sent: ArrayLike, requests: ArrayLike) -> Demand:
    """Return the demand of units that nothing held up, from [second, unit] bytes and requests."""
    dense, counts = np.asarray(sent, dtype=float), np.asarray(requests, dtype=float)
    units = np.arange(dense.shape[1])
    return Recorded.of(cells_of(dense), units, counts.sum(axis=0), len(dense)).low


def dense(cells: Cells, seconds: int, numbers: int) -> Floats:
    sent = np.zeros((seconds, numbers))
    sent[cells.second, cells.number] = cells.sent_bytes
    return sent


def sent_of(demand: Demand) -> Floats:
    """Return [second, unit]."""
    return dense(demand.cells, demand.seconds, demand.units)


def replayed(demand: Demand, limits: ArrayLike, window: Window = Window()) -> ReplayResult:  # noqa: B008  frozen
    return outcome(demand, np.atleast_2d(np.asarray(limits, dtype=float)), window)


class Course(NamedTuple):
    """The course of a replay, each [second, scenario, unit]; and how long what left within it had waited."""

    sent_bytes: Floats
    waiting_bytes: Floats
    throttle_s: Floats
    delays: list[tuple[float, float]]
    """Seconds and bytes."""


def course(demand: Demand, limits: ArrayLike, window: Window = Window()) -> Course:  # noqa: B008  frozen
    limit = np.atleast_2d(np.asarray(limits, dtype=float))
    sent = np.repeat(sent_of(demand)[:, None], len(limit), axis=1)
    waiting, throttle_s = np.zeros((2, *sent.shape))
    delays: list[tuple[float, float]] = []

    def visit(slab: Slab) -> Bools:
        seconds = slice(slab.start, slab.start + len(slab.sent_bytes))
        sent[seconds, *slab.columns.at] = slab.sent_bytes
        waiting[seconds, *slab.columns.at] = slab.waiting_bytes[1:]
        throttle_s[seconds, *slab.columns.at] = slab.throttle_s()
        _, delay_s, leaving = slab.delays()
        delays.extend(zip(delay_s.tolist(), leaving.tolist(), strict=True))
        return np.ones(len(slab.columns.unit), dtype=bool)

    replay(demand, limit, window, visit)
    return Course(sent, waiting, throttle_s, delays)
