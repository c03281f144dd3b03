"""Numbered counters, and the clients that are charged to each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from analysis.demand.sums import Sums
from analysis.kernel.arrays import Bools, Floats, Indices
from quotas.kinds import QuotaKind

Part = tuple[QuotaKind, Indices]
"""A kind, and [client] the number of its counter, -1 for none."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of several kinds, numbered from 0 to ``units`` - 1."""

    parts: Sequence[Part]
    units: int

    def total(self, sums: Sums, name: str) -> Floats:
        """Return [unit] the sum of a field of ``Used``."""
        total = np.zeros(self.units)
        for kind, unit in self.parts:
            chosen = unit >= 0
            total += np.bincount(unit[chosen], getattr(sums.used[kind], name)[chosen], self.units)
        return total

    def rows(self, sums: Sums) -> float:
        """Estimate the number of rows: a client has at most one per interval, and at most one per request."""
        intervals = sums.circumstances.seconds * 1000 / sums.circumstances.interval_ms
        return sum(float(np.minimum(sums.used[kind].requests[unit >= 0], intervals).sum()) for kind, unit in self.parts)

    def surge(self, sums: Sums) -> Floats:
        """Return [unit] an upper bound of the use in any window; exact for a counter that was recorded."""
        return self._of_counters(sums, sums.surges)

    def active_s(self, sums: Sums) -> Floats:
        """Return [unit] an upper bound of the time with use; exact for a counter that was recorded."""
        return np.minimum(self._of_counters(sums, sums.active_s), sums.circumstances.seconds)

    def _of_counters(self, sums: Sums, values: Floats) -> Floats:
        """Return [unit] the sum of ``values`` [counter] over the recorded counters of its clients, each once."""
        total = np.zeros(self.units)
        for kind, unit in self.parts:
            client, counter = sums.used[kind].links
            pairs = np.unique(np.stack((unit[client], counter)), axis=1)
            unit_of, counter = pairs[:, pairs[0] >= 0]
            total += np.bincount(unit_of, values[counter], self.units)
        return total

    def only(self, units: Bools) -> "Counters":
        """Return some units; the numbers stay."""
        none = np.append(units, False)  # for the number -1
        return Counters([(kind, np.where(none[unit], unit, -1)) for kind, unit in self.parts], self.units)

    def assignment(self, sums: Sums) -> pa.Table:
        """Return a row for each client of a unit: its names, ``kind``, ``unit`` and ``series``.

        A client that was held up is a series of its own; all others of a unit are one.
        """
        tables = []
        numbers = self.units
        for kind, unit in self.parts:
            client = np.flatnonzero(unit >= 0)
            series = unit[client].copy()
            alone = sums.used[kind].muted_s[client] > 0
            series[alone] = numbers + np.arange(alone.sum())
            numbers += int(alone.sum())
            columns = {
                "kind": pa.array([kind.row.word] * len(client), pa.string()),
                "unit": pa.array(unit[client], pa.int32()),
                "series": pa.array(series, pa.int32()),
                "origin_ms": pa.array(sums.origins_ms[client], pa.int64()),
            }
            tables.append(pa.table({**sums.names(client), **columns}))
        # In one piece: Spark loses the rows behind an empty one.
        return pa.concat_tables(tables).combine_chunks()
