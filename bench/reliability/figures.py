"""Figures: a line each, `name: measured / mark: PASS|FAIL`, kept as JSON and shown in docs/reliability.md."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "bench" / "results" / "reliability.json"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- python -m bench.reliability -->\n"
END: Final = "<!-- end -->"
HEADER: Final = "| figure | what happens | measured | result | run |\n|---|---|---|---|---|\n"
PROMISED_RECORDS: Final = 5_000_000
"""The records that figure B1 needs."""

ELSEWHERE: Final = {
    "B2": ("Kafka's TransactionalMessageCopier", "transactions of four clients through F1 to F26 ask for the same"),
    "B7": ("groups throttled to 1 % of demand", "tests/integration/test_long_groups.py measures it"),
    "B8": ("time-outs beside a broker's own quota", "tests/integration/test_time_outs.py measures it"),
    "B9": ("many muted connections due at once", "it is not written"),
}
"""Figures that are not run here: what happens, and why not."""


class Result(StrEnum):
    PASS = "PASS"  # noqa: S105  no password
    FAIL = "FAIL"
    NOT_RUN = "not run"


@cache
def this_run() -> str:
    """Commit, date and machine."""
    asked = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release().partition('-')[0]}"
    return f"{commit or 'no commit'}, {datetime.now(UTC).date()}, {machine}"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    what: str
    measured: str
    mark: str
    result: str
    seed: int = 0
    acked: int = 0
    because: str = ""
    """Why it was not run, or fails."""
    details: Sequence[str] = ()
    run: str = field(default_factory=this_run)

    def __str__(self) -> str:
        because = f", because {self.because}" if self.because else ""
        line = (
            f"{self.name} {self.what}: {self.measured or '-'} / {self.mark}: {self.result}{because} (seed {self.seed})"
        )
        return "\n    ".join([line, *self.details])


def load(file: Path = RESULTS) -> dict[str, Figure]:
    found = json.loads(file.read_text("utf-8")) if file.exists() else []
    return {each["name"]: Figure(**each) for each in found}


def save(figures: Iterable[Figure], file: Path = RESULTS) -> None:
    """A figure takes the place of an older one of its name; each has a line of its own."""
    merged = load(file) | {each.name: each for each in figures}
    lines = [json.dumps(asdict(merged[name]), ensure_ascii=False) for name in sorted(merged, key=place)]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def place(name: str) -> tuple[str, int, str]:
    """A11, B1, B2, …, F1, F2, …, F26-disk, F26-pipe."""
    number, _, rest = name[1:].partition("-")
    return name[0], int(number), rest


def sum_of(figures: Iterable[Figure]) -> Figure:
    """Figure B1: records acknowledged in all others, and what was wrong in any."""
    others = [each for each in figures if each.acked and each.name != "B1"]
    failed = [each.name for each in others if each.result == Result.FAIL]
    acked = sum(each.acked for each in others)
    measured = f"{acked:,} acknowledged under {len(others)} figures; failed: {', '.join(failed) or 'none'}"
    mark = f"none fails in {PROMISED_RECORDS:,}"
    if failed or acked >= PROMISED_RECORDS:
        return Figure("B1", "all faults together", measured, mark, Result.FAIL if failed else Result.PASS)
    return Figure("B1", "all faults together", measured, mark, Result.NOT_RUN, because="these runs were shorter")


def write_page(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Make the table between the page's markers anew."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    others = {name: Figure(name, what, "", "", Result.NOT_RUN, because=why) for name, (what, why) in ELSEWHERE.items()}
    found = load(results) | others
    rows = "".join(_row(found[name]) for name in sorted(found, key=place))
    page.write_text(f"{before}{BEGIN}\n{HEADER}{rows}\n{END}{after}", "utf-8")


def _row(figure: Figure) -> str:
    result = f"{figure.result}, because {figure.because}" if figure.because else figure.result
    run = "" if figure.result == Result.NOT_RUN else f"{figure.run}, seed {figure.seed}"
    return f"| {figure.name} | {figure.what} | {figure.measured} | {result} | {run} |\n"
