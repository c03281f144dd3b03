"""Counters by number, and the clients that are charged to each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from analysis.demand.recording import Recording
from analysis.kernel.demand import Bools, Indices
from analysis.kernel.histogram import Floats
from quotas.kinds import QuotaKind

Part = tuple[QuotaKind, Indices]
"""[client] the number of its counter of one kind, -1 for none."""


@dataclass(frozen=True, slots=True)
class Counted:
    """``units`` counters; those of different parts have different numbers."""

    parts: Sequence[Part]
    units: int

    def sums(self, recording: Recording, name: str) -> Floats:
        """Return [unit] the sums of an array of ``recording.Used``."""
        total = np.zeros(self.units)
        for kind, unit in self.parts:
            chosen = unit >= 0
            total += np.bincount(unit[chosen], getattr(recording.used[kind], name)[chosen], self.units)
        return total

    def surge(self, recording: Recording) -> Floats:
        """Return what each unit surely does not exceed within a window.

        Where a unit is a counter that was recorded, it is the most that this counter had in any window.
        """
        return self._of_counters(recording, recording.surges)

    def active_s(self, recording: Recording) -> Floats:
        """Return for how long each unit was in use, at most: exactly, where it is a counter that was recorded."""
        return np.minimum(self._of_counters(recording, recording.active_s), recording.circumstances.seconds)

    def _of_counters(self, recording: Recording, values: Floats) -> Floats:
        """Return [unit] the sums of ``values`` [counter], of each counter once that measured any of its clients."""
        total = np.zeros(self.units)
        for kind, unit in self.parts:
            client, counter = recording.used[kind].links
            pairs = np.unique(np.stack((unit[client], counter)), axis=1)
            unit_of, counter = pairs[:, pairs[0] >= 0]
            total += np.bincount(unit_of, values[counter], self.units)
        return total

    def only(self, units: Bools) -> "Counted":
        """Return them without the others; the numbers stay."""
        none = np.append(units, False)  # the number of nobody is -1
        return Counted([(kind, np.where(none[unit], unit, -1)) for kind, unit in self.parts], self.units)

    def assignment(self, recording: Recording) -> pa.Table:
        """Return a row for each client that is charged to a unit: its names, ``kind``, ``unit`` and ``series``.

        A series is what was held up as one: whoever was held up by itself, all others of a unit together.
        """
        tables = []
        numbers = self.units
        for kind, unit in self.parts:
            client = np.flatnonzero(unit >= 0)
            series = unit[client].copy()
            alone = recording.used[kind].muted_s[client] > 0
            series[alone] = numbers + np.arange(alone.sum())
            numbers += int(alone.sum())
            columns = {
                "kind": pa.array([kind.row.word] * len(client), pa.string()),
                "unit": pa.array(unit[client], pa.int32()),
                "series": pa.array(series, pa.int32()),
                "origin_ms": pa.array(recording.origins_ms[client], pa.int64()),
            }
            tables.append(pa.table({**recording.names(client), **columns}))
        return pa.concat_tables(tables)
