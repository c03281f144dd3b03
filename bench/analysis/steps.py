"""The measured steps of a world: an operator's commands, in order, on the same records."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.analysis.generated import Generated

RECOMMEND: Final = ("--target", "p99 throttle < 100 ms", "--per", "user", "--accept-low-confidence")
GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Aim:
    """The upper limits of a command."""

    cpu_s_per_million: float
    peak_bytes: int = 3 * GIB
    """For ``MEMORY_ROWS`` or fewer."""


MEMORY_ROWS: Final = 20_500_000


@dataclass(frozen=True, slots=True)
class Step:
    """A command of ``sluice analyze``; ``arguments(world, results)``, where ``results`` is a folder for its output."""

    name: str
    arguments: Callable[[Generated, Path], list[str]]
    aim: Aim | None

    def command(self, world: Generated, results: Path, heap: str) -> list[str]:
        """Return the command line. Before an ingest, an existing warehouse is deleted."""
        if self.name == INGEST:
            shutil.rmtree(world.warehouse, ignore_errors=True)
        spark = () if self.name == "report" else ("--conf", f"spark.driver.memory={heap}")
        command = INGEST if self.name == GOLD else self.name
        return [
            *(sys.executable, "-m", "analysis", command, "--warehouse", str(world.warehouse)),
            *self.arguments(world, results),
            *spark,
        ]


INGEST, GOLD = "ingest", "gold"
"""Gold is made by an ingest that finds nothing new."""
STEPS: Final = (
    Step(INGEST, lambda world, _: ["--files", str(world.documents_folder), "--once", "--no-gold"], Aim(4.5)),
    Step(GOLD, lambda world, _: ["--files", str(world.documents_folder), "--once"], Aim(8)),
    Step("report", lambda _, results: ["--out", str(results)], Aim(0.4)),
    Step("whatif", lambda world, results: ["--quotas", str(world.quotas), "--out", str(results)], Aim(7)),
    Step("recommend", lambda _, results: [*RECOMMEND, "--out", str(results / "quotas.yaml")], Aim(7)),
)
