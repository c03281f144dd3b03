"""Recorded demand for periods of any length, replayed a piece at a time."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.kernel.cells import Cells
from analysis.kernel.demand import Demand, Indices
from analysis.kernel.fluid import replay
from analysis.kernel.histogram import Floats
from analysis.kernel.outcome import Carry, Outcome
from analysis.kernel.series import Recorded
from quotas.rate import Window

_PIECE_S: Final = 2048
"""Seconds that are replayed at once, and so are in memory."""
_COLUMNS: Final = 1024
"""Units times scenarios, likewise. Fewer would cost more time for each, more would cost memory."""


def stretches(recorded: Recorded, units: Indices, scenarios: int) -> Iterator["Stretch"]:
    """Yield some units, so many at a time as can be replayed together."""
    width = max(_COLUMNS // scenarios, 1)
    starts = [cells.starts(len(recorded.answers)) for cells in (recorded.low, recorded.high)]
    for at in range(0, len(units), width):
        yield Stretch(recorded, units[at : at + width], starts[0], starts[1])


class Stretch:
    """Units whose whole period is replayed together, a piece after the other."""

    def __init__(self, recorded: Recorded, units: Indices, low: Indices, high: Indices) -> None:
        """``low`` and ``high`` are where the cells of each unit begin."""
        self.units = units
        self._recorded = recorded
        self._low = _Course(recorded.low, units, low)
        self._high = _Course(recorded.high, units, high) if recorded.censored[units].any() else self._low

    @property
    def censored(self) -> bool:
        """Whether demand at most is more than demand at least."""
        return self._high is not self._low

    def replay(self, limits: Floats, window: Window, *, high: bool = False) -> Outcome:
        """Let the demand at least (or at most) meet ``limits`` [scenario, unit of ``units``]."""
        recorded = self._recorded
        course = self._high if high else self._low
        whole: Outcome | None = None
        carry: Carry | None = None
        end = 0
        while end < recorded.seconds:
            begin, end = end, min(end + _PIECE_S, recorded.seconds)
            sent = course.sent_bytes(begin, end)
            if whole is not None and not sent.any() and (carry is None or carry.is_quiet):
                carry = None
                end = max(end, min(course.next_second(end) // _PIECE_S * _PIECE_S, recorded.seconds))
                continue
            demand = Demand(sent, recorded.request_bytes[self.units], recorded.peak_bytes_per_s[self.units])
            outcome = replay(demand, limits, window, before=carry, more=end < recorded.seconds)
            carry = outcome.carry
            whole = outcome if whole is None else whole.then(outcome)
        if whole is None:
            raise ValueError("a recording without a second")
        return replace(whole, seconds=recorded.seconds)


class _Course:
    """The cells of some units by the second."""

    def __init__(self, cells: Cells, units: Indices, starts: Indices) -> None:
        lengths = starts[units + 1] - starts[units]
        index = np.repeat(starts[units] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        order = np.argsort(cells.second[index], kind="stable")
        self._second = cells.second[index][order]
        self._column = np.repeat(np.arange(len(units)), lengths)[order]
        self._sent_bytes = cells.sent_bytes[index][order]
        self._units = len(units)

    def next_second(self, since: int) -> int:
        """Return the first second from there on in which anything was sent; where there is none, one beyond all."""
        at = int(np.searchsorted(self._second, since))
        return int(self._second[at]) if at < len(self._second) else sys.maxsize

    def sent_bytes(self, begin: int, end: int) -> Floats:
        """Return [second, unit] of the seconds from ``begin`` to ``end``."""
        part = slice(*np.searchsorted(self._second, (begin, end)))
        sent = np.zeros((end - begin, self._units))
        sent[self._second[part] - begin, self._column[part]] = self._sent_bytes[part]
        return sent
