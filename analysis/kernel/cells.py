"""Usage by the second, as sparse arrays: from rows of usage records, by series or unit."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.arrays import Bools, Floats, Indices

_GRAIN_MS: Final = 100
"""Intervals are rounded to it: their begins are off by some milliseconds."""
_GRAINS: Final = 1000 // _GRAIN_MS
_SPREAD_CELLS: Final = 2**22
"""The most cells made at once: some 300 MB."""
_NOTHING: Final = np.zeros(0)


def ranges(first: Indices, last: Indices) -> Indices:
    """Return the concatenated ranges from each ``first`` to before its ``last``."""
    lengths = last - first
    return np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


@dataclass(frozen=True, slots=True)
class SeriesRows:
    """Rows of usage records in any order, as arrays of one length."""

    number: Indices
    """A series, or a unit."""
    begin_ms: Indices
    """The begin of the interval, since second 0. Not negative."""
    interval_ms: Indices
    sent_bytes: Floats
    muted_ms: Floats
    """0 in modes other than ``enforce``."""

    def halves(self) -> tuple["SeriesRows", "SeriesRows"]:
        columns = [getattr(self, name) for name in self.__slots__]
        middle = len(self.number) // 2
        first, second = ([column[half] for column in columns] for half in (slice(middle), slice(middle, None)))
        return SeriesRows(*first), SeriesRows(*second)


@dataclass(frozen=True, slots=True)
class Cells:
    """Usage by the second: arrays of one length, each (number, second) once, ascending."""

    number: Indices
    second: Indices
    sent_bytes: Floats
    muted_s: Floats

    @classmethod
    def of(cls, rows: SeriesRows) -> "Cells":
        """Spread each row's usage evenly over its interval, and add up cells of the same second."""
        begin = (rows.begin_ms + _GRAIN_MS // 2) // _GRAIN_MS
        end = np.maximum((rows.begin_ms + rows.interval_ms + _GRAIN_MS // 2) // _GRAIN_MS, begin + 1)
        first = begin // _GRAINS
        pieces = (end - 1) // _GRAINS - first + 1
        if pieces.sum() > _SPREAD_CELLS and len(pieces) > 1:
            earlier, later = rows.halves()
            return cls.of(earlier).plus(cls.of(later))
        row = np.repeat(np.arange(len(pieces)), pieces)
        second = ranges(first, first + pieces)
        overlap = np.minimum(end[row], (second + 1) * _GRAINS) - np.maximum(begin[row], second * _GRAINS)
        share = overlap / (end - begin)[row]
        return cls._gathered(
            rows.number[row],
            second,
            rows.sent_bytes[row] * share,
            rows.muted_ms[row] * (share / 1000),
        )

    @classmethod
    def none(cls) -> "Cells":
        nobody = np.zeros(0, dtype=np.intp)
        return cls(nobody, nobody, _NOTHING, _NOTHING)

    @classmethod
    def _gathered(cls, number: Indices, second: Indices, *values: Floats) -> "Cells":
        if not len(number):
            return cls.none()
        span = int(second.max()) + 1
        key = number * span + second
        order = np.argsort(key, kind="stable")
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        sent, muted = (np.add.reduceat(value[order], starts) for value in values)
        return cls(key[starts] // span, key[starts] % span, sent, np.minimum(muted, 1.0))

    def plus(self, *others: "Cells") -> "Cells":
        parts = [part for part in (self, *others) if len(part.number)]
        if len(parts) < 2:
            return parts[0] if parts else self
        return self._gathered(*(np.concatenate([getattr(part, name) for part in parts]) for name in self.__slots__))

    def where(self, chosen: Bools) -> "Cells":
        return Cells(
            self.number[chosen],
            self.second[chosen],
            self.sent_bytes[chosen],
            self.muted_s[chosen],
        )

    def only(self, numbers: Indices) -> "Cells":
        """Return the cells of some numbers, which become 0, 1, ... in their order."""
        first, last = np.searchsorted(self.number, numbers), np.searchsorted(self.number, numbers, side="right")
        chosen = ranges(first, last)
        number = np.repeat(np.arange(len(numbers)), last - first)
        return Cells(number, self.second[chosen], self.sent_bytes[chosen], self.muted_s[chosen])

    def renumbered(self, numbers: Indices) -> "Cells":
        """Return the cells with ``numbers[number]``; cells that get the same number are added up."""
        return self._gathered(numbers[self.number], self.second, self.sent_bytes, self.muted_s)

    def sums(self, values: Floats | Bools, count: int) -> Floats:
        """Return the sums of ``values`` [cell] for each of ``count`` numbers."""
        return np.asarray(np.bincount(self.number, values, count), dtype=float)

    def surge_bytes(self, count: int, window_s: float) -> Floats:
        """Return the most bytes of each number in any window, rounded up to whole seconds, sliding by seconds."""
        most = np.zeros(count)
        if len(self.number):
            span = int(self.second.max()) + 1 + int(np.ceil(window_s))
            key = self.number * span + self.second
            total = np.concatenate(([0.0], np.cumsum(self.sent_bytes)))
            since = np.maximum(key - int(np.ceil(window_s)) + 1, self.number * span)
            np.maximum.at(most, self.number, total[1:] - total[np.searchsorted(key, since)])
        return most
