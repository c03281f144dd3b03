"""Percentiles of many groups of values at once: exact, from the values themselves."""

from dataclasses import dataclass

import numpy as np

from analysis.table.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Groups:
    """Values that stand together, [group] from ``first`` on so many."""

    first: Ints
    busy: Ints
    ranked: Floats
    """All values, those of a group still together, the least of them first."""
    active: Ints
    """How many are of intervals in which anything was used."""
    ranked_active: Floats
    """The values again, in each group those of idle intervals before all others."""

    @classmethod
    def of(cls, values: Floats, is_active: Bools, rank: Ints, first: Ints) -> "Groups":
        """``rank`` is that of each value among all of them."""
        busy = np.diff(first, append=len(rank))
        group = np.repeat(np.arange(len(first)), busy)
        active = np.add.reduceat(is_active.astype(np.int64), first)
        ranked = values[np.argsort(group * len(rank) + rank)]
        if (active == busy).all():
            return cls(first, busy, ranked, active, ranked)
        idle_first = np.argsort((2 * group + is_active) * len(rank) + rank)
        return cls(first, busy, ranked, active, values[idle_first])

    def percentile(self, total: Ints | int, share: float) -> Floats:
        """Return what ``share`` of ``total`` intervals does not exceed, the least such: idle ones are below others."""
        place = np.ceil(total * share - (total - self.busy)).astype(np.int64) - 1
        return np.where(place < 0, 0.0, self.ranked[self.first + np.maximum(place, 0)])

    def while_active(self, share: float) -> Floats:
        """Return what ``share`` of the active intervals does not exceed; NaN (for null) where there are none."""
        place = self.busy - self.active + np.maximum(np.ceil(self.active * share).astype(np.int64), 1) - 1
        return np.where(self.active > 0, self.ranked_active[self.first + np.minimum(place, self.busy - 1)], np.nan)


def starts(*columns: Ints) -> Ints:
    """Return where rows begin that are the same in all columns; those that are stand together."""
    changes = np.zeros(len(columns[0]), dtype=bool)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)
