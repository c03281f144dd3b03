"""What is known of units by what was recorded of their series: demand at least and at most.

A *series* is what a throttle held up as one while it was recorded; the seconds of one or several make up a unit of
the quotas that are looked at. NumPy alone.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.cells import Cells
from analysis.kernel.censoring import Answer, bounds
from analysis.kernel.demand import Bools, Demand, Indices
from analysis.kernel.histogram import Floats

_MOVED_CELLS: Final = 2**20
"""Seconds times series whose bytes are moved to the begin of their throttles at once."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known of units: their demand at least and at most, and [unit] how the seconds of it came about."""

    low: Cells
    high: Cells
    """Differs from ``low`` in units that were held up."""
    answers: tuple[Answer, ...]
    seconds: int
    requests: Floats
    request_bytes: Floats
    peak_bytes_per_s: Floats

    @classmethod
    def of(cls, cells: Cells, unit_of: Indices, requests: Floats, seconds: int) -> "Recorded":
        """Take the cells of series [series -> unit]; ``requests`` is [unit]."""
        low = cells.renumbered(unit_of)
        units = len(requests)
        total = low.sums(low.sent_bytes, units)
        most = np.zeros(units)
        np.maximum.at(most, low.number, low.sent_bytes)
        muted = np.zeros(len(unit_of), dtype=bool)
        muted[cells.number[cells.muted_s > 0]] = True
        moved, unknown = _earliest(cells.where(muted[cells.number]), seconds)
        held, unsure = np.zeros((2, units), dtype=bool)
        held[unit_of[muted]] = True
        unsure[unit_of[unknown]] = True
        high = cells.where(~muted[cells.number]).plus(moved).renumbered(unit_of) if len(moved.number) else low
        answers = np.where(unsure, Answer.UNKNOWN, np.where(held, Answer.INTERVAL, Answer.EXACT))
        return cls(
            low,
            high,
            tuple(map(Answer, answers.tolist())),
            seconds,
            requests,
            np.maximum(total / np.maximum(requests, 1), 1),
            _peak(most),
        )

    @property
    def censored(self) -> Bools:
        """[unit]: ``high`` is not ``low``."""
        return np.array([answer is not Answer.EXACT for answer in self.answers], dtype=bool)


def _peak(most_bytes_per_s: Floats) -> Floats:
    one = np.ones((1, len(most_bytes_per_s)))
    return Demand.recorded(most_bytes_per_s[None], one).peak_bytes_per_s


def _earliest(cells: Cells, seconds: int) -> tuple[Cells, Indices]:
    """Return what was sent, but in each throttle as early as could be; and the numbers held up at the end."""
    numbers = np.unique(cells.number)
    found = []
    unknown: list[int] = []
    # Of seconds in which nobody did anything two are left behind each other one: no throttle reaches over them.
    known = np.unique(np.concatenate((*(cells.second + later for later in range(3)), [seconds - 1])))
    known = known[known < seconds]
    width = max(_MOVED_CELLS // len(known), 1)
    for at in range(0, len(numbers), width):
        part = numbers[at : at + width]
        mine = slice(*np.searchsorted(cells.number, (part[0], part[-1] + 1)))
        column, row = np.searchsorted(part, cells.number[mine]), np.searchsorted(known, cells.second[mine])
        sent, muted = np.zeros((2, len(known), len(part)))
        sent[row, column] = cells.sent_bytes[mine]
        muted[row, column] = cells.muted_s[mine]
        nothing = np.ones(len(part))
        censored = bounds(Demand(sent, nothing, _peak(sent.max(axis=0))), muted)
        column, row = np.nonzero(censored.high.sent_bytes.T)
        nobody = np.zeros(len(column))
        found.append(Cells(part[column], known[row], censored.high.sent_bytes[row, column], nobody))
        unknown += part[[answer is Answer.UNKNOWN for answer in censored.answers]].tolist()
    joined = (np.concatenate([getattr(cells, name) for cells in found]) for name in Cells.__slots__) if found else ()
    return Cells(*joined) if found else Cells.none(), np.array(unknown, dtype=np.intp)
