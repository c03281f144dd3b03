"""Demand of units by the second, and its arrival. A unit is one counter on one broker."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.arrays import Floats, Indices
from analysis.kernel.cells import Cells, ranges

_IN_FLIGHT: Final = 0.1
"""The share of a request that is under way when its throttle is computed."""
_FASTER: Final = 10
"""The peak rate of a client over its rate in any whole second. Between 5 and 30 the model agrees equally well."""

_BLUR: Final = 2.0**-50
"""The relative error of sums over all units."""


def peak_rates(cells: Cells, count: int) -> Floats:
    """Return the unthrottled rate of each of ``count`` numbers, in bytes per second."""
    most = np.zeros(count)
    np.maximum.at(most, cells.number, cells.sent_bytes)
    return np.maximum(_FASTER * most, 1)


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes that units want to send; the numbers of ``cells`` are units, arrays are [unit]."""

    cells: Cells
    seconds: int
    request_bytes: Floats
    peak_bytes_per_s: Floats

    @property
    def units(self) -> int:
        return len(self.request_bytes)

    @property
    def total_bytes(self) -> Floats:
        return self.cells.sums(self.cells.sent_bytes, self.units)

    @property
    def active_s(self) -> Floats:
        """The number of seconds with demand."""
        return self.cells.sums(self.cells.sent_bytes > 0, self.units)

    @property
    def in_flight_bytes(self) -> Floats:
        """Bytes under way when a throttle is computed."""
        return _IN_FLIGHT * self.request_bytes

    def only(self, units: Indices) -> "Demand":
        return Demand(self.cells.only(units), self.seconds, self.request_bytes[units], self.peak_bytes_per_s[units])


def curve(values: Floats) -> Floats:
    """Return the cumulative sums of values [second, ...]: one point more than seconds, the first is 0."""
    points = np.empty((len(values) + 1, *values.shape[1:]))
    points[0] = 0
    for second, value in enumerate(values):  # a third of the time of cumsum along the first axis
        np.add(points[second], value, out=points[second + 1])
    return points


class Arrivals:
    """Looks up the arrivals of units by second and by amount."""

    def __init__(self, demand: Demand) -> None:
        cells = demand.cells
        self._cells = cells
        self._stride = demand.seconds + 1
        self._key = cells.number * self._stride + cells.second
        # As shares of each unit's total: a unit with huge values does not cost the others precision.
        self._total = np.maximum(demand.total_bytes, 1)
        self._share = cells.sent_bytes / self._total[cells.number]
        self._sums = np.concatenate(([0.0], np.cumsum(self._share)))

    def surges(self, window_s: int, slab_s: int, least: Floats) -> dict[int, tuple[Indices, Floats]]:
        """Return which units had more than their ``least`` bytes in a window that ends in a slab, and how many at most.

        By the number of the slab, ascending; never too few.
        """
        cells = self._cells
        since = np.maximum(cells.second - window_s + 1, 0)
        first = np.searchsorted(self._key, self._key - cells.second + since)
        most = (self._sums[1:] - self._sums[first] + self._sums[-1] * _BLUR) * self._total[cells.number]
        over = np.flatnonzero(most > least[cells.number])
        if not len(over):
            return {}
        slab, unit = cells.second[over] // slab_s, cells.number[over]
        starts = np.flatnonzero((np.diff(slab, prepend=-1) != 0) | (np.diff(unit, prepend=-1) != 0))
        of_each = np.maximum.reduceat(most[over], starts)
        slab, unit = slab[starts], unit[starts]
        order = np.argsort(slab, kind="stable")
        slabs, begins = np.unique(slab[order], return_index=True)
        parts = np.split(order, begins[1:])
        return {at: (unit[part], of_each[part]) for at, part in zip(slabs.tolist(), parts, strict=True)}

    def points(self, units: Indices, start: int, seconds: int) -> Floats:
        """Return the curves [point, one of ``units``] of ``seconds`` from ``start``, which may be negative."""
        first, last = self._at(units, max(start, 0)), self._at(units, max(start + seconds, 0))
        index = ranges(first, last)
        sent = np.zeros((seconds, len(units)))
        column = np.repeat(np.arange(len(units)), last - first)
        sent[self._cells.second[index] - start, column] = self._cells.sent_bytes[index]
        return curve(sent)

    def time_s(self, units: Indices, since: int, amounts: Floats) -> Floats:
        """Return the time at which each amount since a second had arrived; arrivals are even within a second."""
        wanted = self._sums[self._at(units, since)] + amounts / self._total[units]
        begin, end = self._at(units, 0), self._at(units, self._stride - 1)
        cell = np.clip(np.searchsorted(self._sums, wanted) - 1, begin, np.maximum(end - 1, begin))
        part = (wanted - self._sums[cell]) / np.maximum(self._share[cell], np.finfo(float).tiny)
        return np.asarray(self._cells.second[cell] + np.clip(part, 0, 1))

    def _at(self, units: Indices, second: int) -> Indices:
        """Return the number of cells before a second of each unit."""
        return np.searchsorted(self._key, units * self._stride + min(second, self._stride - 1))
