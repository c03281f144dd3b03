"""What clients wanted while a quota held them back: recorded bytes are what passed, not what was wanted.

Replayed as they stand they never look throttled under a higher quota. But the bytes of a throttled episode all
wanted to pass by its end, and none before it began: so the demand lies between what was recorded and all of the
episode's bytes at its start, as fast as the client ever sent.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel.demand import Bools, Demand
from analysis.kernel.histogram import Floats
from analysis.kernel.outcome import Outcome

_AFTERWARDS_S: Final = 1
"""In the second behind a throttle passes what it held up last."""
_MODEL_SHARE: Final = 0.05
"""How far from the truth the model itself may be, as a share of the active time (test_agreement.py)."""


class Answer(StrEnum):
    """How much a recording can tell about other quotas."""

    EXACT = "exact"
    INTERVAL = "interval"
    UNKNOWN = "unknown"
    """It ended while the unit was held up: how much more it wanted was never seen. The lower bound holds."""


@dataclass(frozen=True, slots=True)
class Known:
    """How much is known of units, each [unit]."""

    answers: tuple[Answer, ...]
    muted_s: Floats
    """In how many seconds each was held up while recorded."""


@dataclass(frozen=True, slots=True)
class Censored(Known):
    """Demand at least and at most; they differ where the answer is not exact."""

    low: Demand
    high: Demand


def bounds(demand: Demand, muted_s: ArrayLike) -> Censored:
    """Return the bounds of what was wanted, from what passed and how long of each second each unit was muted.

    ``muted_s`` is [second, unit], of records made in mode ``enforce``; 0 in other modes, where nothing is held up.
    Rows that shared no counter while recorded are bounded apart, and gathered into units of the proposed quotas then.
    """
    muted = np.asarray(muted_s, dtype=float)
    if muted.shape != demand.sent_bytes.shape:
        raise ValueError(f"muted_s must be {demand.sent_bytes.shape}, not {muted.shape}")
    throttled = muted > 0
    episodes = throttled.copy()
    for later in range(1, _AFTERWARDS_S + 1):
        episodes[later:] |= throttled[:-later]
    moved = _to_the_start(demand.sent_bytes, episodes, demand.peak_bytes_per_s)
    high = Demand(moved, demand.request_bytes, demand.peak_bytes_per_s)
    return Censored(tuple(_answers(throttled, episodes)), muted.sum(axis=0), demand, high)


def throttled_bounds_s(
    known: Known, low: Outcome, high: Outcome, limits: ArrayLike, recorded: ArrayLike
) -> tuple[Floats, Floats]:
    """Return for how many seconds each unit would be throttled, at least and at most, [scenario, unit] both.

    ``low`` and ``high`` are the replays of the two demands under ``limits``; ``recorded`` are [2, unit] the least and
    the highest limit that were in force meanwhile, NaN where they are not known: under more than the highest a unit is
    not throttled more than it was, and under less than the least not less; they are one where nothing changed. Where a
    unit was never throttled both are what the replay says.
    """
    exact = np.array([answer is Answer.EXACT for answer in known.answers])
    unknown = np.array([answer is Answer.UNKNOWN for answer in known.answers])
    slack_s = _MODEL_SHARE * np.maximum(low.active_s, high.active_s)
    least = np.minimum(low.throttled_s, high.throttled_s) - slack_s
    most = np.maximum(low.throttled_s, high.throttled_most_s) + slack_s
    most = np.where(unknown, low.seconds, most)
    least_limit, most_limit = np.asarray(recorded, dtype=float)
    proposed = np.asarray(limits, dtype=float)
    proposed = np.where(np.isnan(proposed), np.inf, proposed)
    least = np.where(proposed <= least_limit, np.maximum(least, known.muted_s), least)  # false where it is NaN
    most = np.where(proposed >= most_limit, np.minimum(most, known.muted_s), most)
    same = (proposed == least_limit) & (proposed == most_limit)
    least, most = (np.where(same, known.muted_s, seconds) for seconds in (least, most))
    least = np.clip(least, 0, low.seconds)
    most = np.clip(most, 0, low.seconds)
    least = np.minimum(least, most)
    return np.where(exact, low.throttled_s, least), np.where(exact, low.throttled_s, most)


def _answers(throttled: Bools, episodes: Bools) -> list[Answer]:
    ever: list[bool] = np.logical_or.reduce(throttled).tolist()
    at_the_end: list[bool] = np.logical_or.reduce(episodes[-1:]).tolist()
    return [
        Answer.UNKNOWN if unknown else Answer.INTERVAL if interval else Answer.EXACT
        for unknown, interval in zip(at_the_end, ever, strict=True)
    ]


def _to_the_start(sent: Floats, episodes: Bools, peak: Floats) -> Floats:
    """Move the bytes of each run of True in a column of ``episodes`` to its start, at ``peak`` at most."""
    seconds, units = sent.shape
    # One long row, unit after unit, with a gap behind each so that no run crosses.
    inside = np.zeros((units, seconds + 1), dtype=bool)
    inside[:, :seconds] = episodes.T
    flat = np.zeros((units, seconds + 1))
    flat[:, :seconds] = sent.T
    edges = np.diff(inside.ravel(), prepend=False, append=False).nonzero()[0]
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return sent
    sums = np.concatenate(([0.0], np.cumsum(flat.ravel())))
    lengths = ends - starts
    cells = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) + np.arange(lengths.sum())
    before = (cells - np.repeat(starts, lengths)) * peak[cells // (seconds + 1)]
    total = np.repeat(sums[ends] - sums[starts], lengths)
    flat.ravel()[cells] = np.clip(total - before, 0, peak[cells // (seconds + 1)])
    return np.ascontiguousarray(flat[:, :seconds].T)
