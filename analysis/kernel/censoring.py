"""Demand that a quota held back while it was recorded: recorded bytes are what passed, not what was wanted.

Replayed as they stand they never look throttled under a higher quota. But the bytes of a throttled episode all
wanted to pass by its end, and none before it began: so the demand lies between what was recorded and all of the
episode's bytes at its start, as fast as the client ever sent.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from analysis.kernel.arrays import Floats, Indices
from analysis.kernel.cells import Cells, ranges
from analysis.kernel.demand import Demand, peak_rates
from analysis.kernel.outcome import Outcome

_MODEL_SHARE: Final = 0.05
"""How far from the truth the model itself may be, as a share of the active time (test_agreement.py)."""


class Answer(IntEnum):
    """How much a recording can tell about other quotas."""

    EXACT = 0
    INTERVAL = 1
    UNKNOWN = 2
    """It ended while the unit was held up: how much more it wanted was never seen. The lower bound holds."""

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Recorded:
    """Demand of units at least and at most, and [unit] how much is known."""

    low: Demand
    high: Demand
    """Differs from ``low`` in units that were held up."""
    answers: Indices
    """As ``Answer``."""
    muted_s: Floats
    """In how many seconds each was held up while recorded."""

    @classmethod
    def of(cls, cells: Cells, unit_of: Indices, requests: Floats, seconds: int) -> "Recorded":
        """Take the cells of series [series -> unit]; ``requests`` is [unit].

        A series is what a throttle held up as one while it was recorded; one or several make up a unit.
        """
        cells = cells.where(cells.second < seconds)
        earliest, at_the_end = _earliest(cells, len(unit_of), seconds)
        low, high = (each.renumbered(unit_of) for each in (cells, earliest))
        units = len(requests)
        muted_s = low.sums(low.muted_s, units)
        answers = np.where(muted_s > 0, Answer.INTERVAL, Answer.EXACT)
        answers[unit_of[at_the_end]] = Answer.UNKNOWN
        request_bytes = np.maximum(low.sums(low.sent_bytes, units) / np.maximum(requests, 1), 1)
        peak = peak_rates(low, units)
        return cls(
            Demand(low, seconds, request_bytes, peak), Demand(high, seconds, request_bytes, peak), answers, muted_s
        )

    def only(self, units: Indices) -> "Recorded":
        """Return some units, numbered in their order."""
        return Recorded(self.low.only(units), self.high.only(units), self.answers[units], self.muted_s[units])


def _earliest(cells: Cells, series: int, seconds: int) -> tuple[Cells, Indices]:
    """Return the cells with the bytes of each throttle as early in it as could be; and who was throttled at the end."""
    stride = seconds + 1
    key = cells.number * stride + cells.second
    muted = key[cells.muted_s > 0]
    # In the second behind a throttle passes what it held up last.
    inside = np.unique(np.concatenate((muted, muted + 1)))
    inside = inside[inside % stride < seconds]
    starts = np.flatnonzero(np.diff(inside, prepend=-2) != 1)
    length = np.diff(starts, append=len(inside))
    first, last = np.searchsorted(key, inside[starts]), np.searchsorted(key, inside[starts] + length)
    total = np.add.reduceat(np.append(cells.sent_bytes, 0), np.stack((first, last), axis=1).ravel())[::2]
    number = inside // stride
    peak = peak_rates(cells, series)[number]
    waited_s = ranges(np.zeros_like(length), length)
    sent = np.clip(np.repeat(total, length) - waited_s * peak, 0, peak)
    apart = np.ones(len(key), dtype=bool)
    apart[ranges(first, last)] = False
    moved = Cells(number, inside % stride, sent, np.zeros(len(sent)))
    return cells.where(apart).plus(moved), number[inside % stride == seconds - 1]


def throttled_bounds_s(
    recorded: Recorded, low: Outcome, high: Outcome, limits: Floats, in_force: Floats
) -> tuple[Floats, Floats]:
    """Return for how many seconds each unit would be throttled, at least and at most, [scenario, unit] both.

    ``low`` and ``high`` are the replays of the two demands under ``limits``; ``in_force`` are [2, unit] the least and
    the highest limit while recorded, NaN where they are not known: under more than the highest a unit is
    not throttled more than it was, and under less than the least not less; they are one where nothing changed. Where a
    unit was never throttled both are what the replay says.
    """
    seconds = recorded.low.seconds
    slack_s = _MODEL_SHARE * np.maximum(low.active_s, high.active_s)
    least = np.minimum(low.throttled_s, high.throttled_s) - slack_s
    most = np.maximum(low.throttled_s, high.throttled_most_s) + slack_s
    most = np.where(recorded.answers == Answer.UNKNOWN, seconds, most)
    least_limit, most_limit = in_force
    least = np.where(limits <= least_limit, np.maximum(least, recorded.muted_s), least)  # false where it is NaN
    most = np.where(limits >= most_limit, np.minimum(most, recorded.muted_s), most)
    same = (limits == least_limit) & (limits == most_limit)
    least, most = (np.clip(np.where(same, recorded.muted_s, each), 0, seconds) for each in (least, most))
    exact = recorded.answers == Answer.EXACT
    return np.where(exact, low.throttled_s, np.minimum(least, most)), np.where(exact, low.throttled_s, most)
