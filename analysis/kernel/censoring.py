"""Bounds of demand that a quota held back while it was recorded.

Recorded bytes have passed, so they would never be throttled under a higher quota. The demand behind the bytes of a
throttled episode arrived between its begin and its end: at least as recorded, at most all of it at the begin, as fast
as the client ever sent.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from analysis.kernel.arrays import Floats, Indices
from analysis.kernel.cells import Cells, ranges
from analysis.kernel.demand import Demand, peak_rates
from analysis.kernel.outcome import ReplayResult

_MODEL_SHARE: Final = 0.05
"""The error of the model itself, as a share of the active time (test_agreement.py)."""


class Answer(IntEnum):
    """How well a recording determines the demand."""

    EXACT = 0
    INTERVAL = 1
    UNKNOWN = 2
    """The recording ended while the unit was held up: only the lower bound is known."""

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The bounds of demand of units; arrays are [unit]."""

    low: Demand
    high: Demand
    """Differs from ``low`` for units that were held up."""
    answers: Indices
    """Values of ``Answer``."""
    muted_s: Floats
    """The number of seconds in which the unit was held up while recorded."""

    @classmethod
    def of(cls, cells: Cells, unit_of: Indices, requests: Floats, seconds: int) -> "Recorded":
        """Return the demand of units from cells of series; ``unit_of`` is [series], ``requests`` [unit].

        The clients of a series were throttled together while recorded; a unit has one or several.
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
    """Return the cells with the bytes of each throttle moved to its begin, and the series throttled at the end."""
    stride = seconds + 1
    key = cells.number * stride + cells.second
    muted = key[cells.muted_s > 0]
    # The second behind a throttle has the last bytes that it held up.
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
    recorded: Recorded, low: ReplayResult, high: ReplayResult, limits: Floats, in_force: Floats
) -> tuple[Floats, Floats]:
    """Return the least and the most throttled seconds, [scenario, unit] each.

    ``low`` and ``high`` are the replays of the two demands under ``limits``; ``in_force`` is [2, unit] the lowest and
    the highest limit while recorded, NaN if unknown. Above the highest a unit is throttled at most as long as it was,
    below the lowest at least as long. For units that were never throttled, both bounds are the replay's.
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
