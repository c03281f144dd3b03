"""The table of costs per million rows, with aims and growth with the number of rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from bench.analysis.process_tree import Cost
from bench.analysis.steps import MEMORY_ROWS, Aim

HEADINGS: Final = ("step", "world", "rows", "cpu-s", "cpu-s/M", "JVM", "wall s", "peak MiB", "aim", "")
WIDTHS: Final = (18, 8, 8, 9, 9, 6, 8, 10, 22, 8)
AIM_ROWS: Final = 9_500_000
"""The least rows for an aim per million rows: starting Spark costs the same for any number of rows."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a step in one world."""

    step: str
    world: str
    rows: int
    cost: Cost

    @property
    def cpu_s_per_million(self) -> float:
        return self.cost.cpu_s / self.rows * 1e6

    def misses(self, aim: Aim | None) -> list[str]:
        """Return the figures that miss the aim, as far as it applies to this number of rows."""
        if aim is None:
            return []
        missed = []
        if self.rows >= AIM_ROWS and self.cpu_s_per_million > aim.cpu_s_per_million:
            missed.append("cpu")
        if self.rows <= MEMORY_ROWS and self.cost.peak_bytes > aim.peak_bytes:
            missed.append("memory")
        return missed

    def line(self, aim: Aim | None) -> str:
        said = f"{aim.cpu_s_per_million:g} cpu-s/M, {aim.peak_bytes >> 20} MiB" if aim else ""
        missed = ", ".join(self.misses(aim))
        return row(
            self.step,
            self.world,
            millions(self.rows),
            f"{self.cost.cpu_s:.1f}",
            f"{self.cpu_s_per_million:.2f}",
            f"{self.cost.jvm_cpu_s / self.cost.cpu_s:.0%}",
            f"{self.cost.wall_s:.1f}",
            f"{self.cost.peak_bytes / 2**20:,.0f}",
            said,
            f"MISSED: {missed}" if missed else "",
        )

    def as_json(self, aim: Aim | None) -> dict[str, object]:
        return {**asdict(self), "cpu_s_per_million": self.cpu_s_per_million, "missed": self.misses(aim)}


@dataclass(frozen=True, slots=True)
class Growth:
    """A linear fit of costs over worlds that differ only in length."""

    fixed_s: float
    cpu_s_per_million: float
    worst: float
    """The largest relative deviation from the fit."""

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> "Growth | None":
        """Return the fit; None for fewer than three points."""
        if len(measured) < 3:
            return None
        rows = np.array([each.rows / 1e6 for each in measured])
        cpu_s = np.array([each.cost.cpu_s for each in measured])
        # Weighted by relative errors: otherwise only the longest world would count.
        slope, fixed = np.polyfit(rows, cpu_s, 1, w=1 / cpu_s)
        return cls(float(fixed), float(slope), float(np.abs((fixed + slope * rows) / cpu_s - 1).max()))

    def __str__(self) -> str:
        return f"{self.fixed_s:.1f} cpu-s + {self.cpu_s_per_million:.2f} cpu-s/M, within {self.worst:.0%}"


def growths(measured: Sequence[Measured]) -> dict[tuple[str, str], Growth]:
    """Return the fit of each (step, world) with enough points."""
    found = {}
    for key in dict.fromkeys((each.step, each.world) for each in measured):
        growth = Growth.of([each for each in measured if (each.step, each.world) == key])
        if growth is not None:
            found[key] = growth
    return found


def row(*cells: str) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def millions(rows: int) -> str:
    return f"{rows / 1e6:.1f} M"
