"""Percentiles of many groups of values at once, from how often each value was there.

Values are rounded to 256 for each octave, which is right to 0.2 %. So a day of a counter is some hundred numbers,
however many intervals it had, and those of several days are added up: what is kept of days (``table.summaries``) says
the same as their rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.table.arrays import Floats, Ints

_SHIFT: Final = 52 - 8
"""Of the 52 binary digits behind the point of a float, so many go."""
_CODES: Final = 20
"""Binary digits of a code."""


def codes(values: Floats) -> Ints:
    """Return a number for each value (not negative), rounded; in the order of the values."""
    return np.asarray((np.ascontiguousarray(values, dtype=float).view(np.int64) + (1 << _SHIFT - 1)) >> _SHIFT)


def values_of(code: Ints) -> Floats:
    """Return the values that have these ``codes``."""
    return np.asarray((code << _SHIFT).view(float))


@dataclass(frozen=True, slots=True)
class Runs:
    """Values of groups, each once: those of a group stand together, the least of them first."""

    first: Ints
    """[group] where its values begin."""
    code: Ints
    """[value] as ``codes``; and so on."""
    busy: Ints
    """In how many intervals it was there."""
    active: Ints
    """In how many of these anything was used."""

    @classmethod
    def of(cls, group: Ints, code: Ints, busy: Ints, active: Ints) -> "Runs":
        """Add up arrays of one length; ``group`` are numbers from 0 on, none left out."""
        order = np.argsort(group << _CODES | code)
        group, code = group[order], code[order]
        first = starts(group, code)
        counts = (np.add.reduceat(each[order], first) if len(first) else each[:0] for each in (busy, active))
        return cls(starts(group[first]), code[first], *counts)

    def sums(self, counts: Ints) -> Ints:
        """Return the sum of ``busy`` or ``active`` of each group."""
        return np.add.reduceat(counts, self.first) if len(self.first) else counts[:0]

    def percentile(self, total: Ints | int, share: float) -> Floats:
        """Return what ``share`` of ``total`` intervals does not exceed, the least such: idle ones are below others."""
        place = np.ceil(total * share - (total - self.sums(self.busy))).astype(np.int64)
        return np.where(place > 0, self._at(self.busy, np.maximum(place, 1)), 0.0)

    def while_active(self, share: float) -> Floats:
        """Return what ``share`` of the active intervals does not exceed; NaN (for null) where there are none."""
        active = self.sums(self.active)
        place = np.maximum(np.ceil(active * share).astype(np.int64), 1)
        return np.where(active > 0, self._at(self.active, np.minimum(place, active)), np.nan)

    def _at(self, counts: Ints, place: Ints) -> Floats:
        """Return the value of each group that is at a place, from 1 on, among as many as ``counts`` says."""
        up_to = np.cumsum(counts)
        before = up_to[self.first] - counts[self.first]
        at = np.searchsorted(up_to, before + place)
        return values_of(self.code[np.minimum(at, len(self.code) - 1)])


def starts(*columns: Ints) -> Ints:
    """Return where rows begin that are the same in all columns; those that are stand together."""
    changes = np.zeros(len(columns[0]), dtype=bool)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)
