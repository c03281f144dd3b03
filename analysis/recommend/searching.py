"""The search for the smallest quotas that meet a target, in a worker."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.demand.gathering import Gathered
from analysis.kernel.cells import Cells
from analysis.kernel.censoring import Answer
from analysis.kernel.histogram import Floats
from analysis.kernel.search import smallest
from analysis.kernel.target import Target
from quotas.rate import Window

FIGURES: Final = ("needed", "p99", "most", "surge", "answer")
"""Figures of each unit: rates in the unit of the limit per second, and the number of its answer in ANSWERS."""
SCHEMA: Final = ", ".join(["unit INT", *(f"{name} DOUBLE" for name in FIGURES)])
ANSWERS: Final = tuple(Answer)


@dataclass(frozen=True, slots=True)
class Searching:
    """Searches for the units of one task: a row of FIGURES for each ``unit``."""

    window: Window
    target: Target

    def __call__(self, gathered: Gathered) -> pa.Table:
        recorded = gathered.recorded
        units = len(gathered.units)
        window_s = self.window.keep_ms / 1000
        figures = (
            smallest(recorded, self.target, self.window),
            *_rates(recorded.low, units),
            recorded.low.surge_bytes(units, window_s) / window_s,
            np.array([ANSWERS.index(answer) for answer in recorded.answers], dtype=float),
        )
        columns = [pa.array(gathered.units, pa.int32()), *map(pa.array, figures)]
        return pa.table(columns, names=["unit", *FIGURES])


def _rates(cells: Cells, units: int) -> tuple[Floats, Floats]:
    """Return the p99 of the seconds with use, and the most, of each unit."""
    order = np.lexsort((cells.sent_bytes, cells.number))
    sent = cells.sent_bytes[order]
    starts = cells.starts(units)
    count = np.diff(starts)
    last = np.maximum(starts[1:] - 1, 0)
    rank = np.maximum(np.ceil(0.99 * count).astype(np.intp) - 1, 0)
    p99 = sent[np.minimum(starts[:-1] + rank, len(sent) - 1)]
    return np.where(count > 0, p99, 0), np.where(count > 0, sent[last], 0)
