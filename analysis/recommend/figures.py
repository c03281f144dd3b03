"""The search for the smallest quotas in a Spark worker, from rows of counters."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.arrays import Floats, Indices
from analysis.kernel.cells import Cells
from analysis.kernel.censoring import Recorded
from analysis.kernel.search import smallest
from analysis.kernel.target import Target
from quotas.rate import Window

FIGURES: Final = ("needed", "p99", "most", "surge", "answer")
"""Rates are in the unit of the limit per second."""


@dataclass(frozen=True, slots=True)
class Search:
    """Searches for the units of one task."""

    window: Window
    target: Target

    def __call__(self, units: Indices, recorded: Recorded) -> Floats:
        """Return [figure of FIGURES, one of ``units``]."""
        cells = recorded.low.cells
        window_s = self.window.keep_ms / 1000
        surge = cells.surge_bytes(len(units), window_s) / window_s
        needed = smallest(recorded, self.target, self.window)
        return np.array([needed, *_rates(cells, len(units)), surge, recorded.answers])


def _rates(cells: Cells, units: int) -> tuple[Floats, Floats]:
    """Return the p99 of the seconds with use, and the most, of each unit."""
    sent = cells.sent_bytes[np.lexsort((cells.sent_bytes, cells.number))]
    starts = np.searchsorted(cells.number, np.arange(units + 1))
    count = np.diff(starts)
    rank = np.maximum(np.ceil(0.99 * count).astype(np.intp), 1)
    padded = np.append(sent, 0.0)
    p99, most = padded[starts[:-1] + rank - 1], padded[np.maximum(starts[1:] - 1, 0)]
    return np.where(count > 0, p99, 0), np.where(count > 0, most, 0)
