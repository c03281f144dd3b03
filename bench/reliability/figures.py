"""Figures: one line each, kept in bench/results/reliability.json, and shown in docs/reliability.md."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "bench" / "results" / "reliability.json"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- python -m bench.reliability -->\n"
END: Final = "<!-- end -->"


class Result(StrEnum):
    PASS = "PASS"  # noqa: S105  no password
    FAIL = "FAIL"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    what: str
    measured: str
    mark: str
    result: str
    seed: int
    acked: int = 0
    because: str = ""
    """Why it was not run, or why it fails."""
    commit: str = ""
    date: str = ""
    details: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def of(
        cls,
        name: str,
        what: str,
        measured: str,
        mark: str,
        result: Result,
        *,
        seed: int,
        acked: int = 0,
        because: str = "",
        details: Sequence[str] = (),
    ) -> "Figure":
        """Of this commit and day."""
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        day = datetime.now(UTC).date().isoformat()
        return cls(name, what, measured, mark, result, seed, acked, because, commit.stdout.strip(), day, tuple(details))

    def __str__(self) -> str:
        if self.result == Result.NOT_RUN:
            return f"{self.name} {self.what}: not run, because {self.because}"
        lines = [f"{self.name} {self.what}: {self.measured} / {self.mark}: {self.result} (seed {self.seed})"]
        return "\n    ".join([*lines, *self.details])
