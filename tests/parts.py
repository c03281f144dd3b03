"""The parts of ``make test`` and ``make test-slow``, side by side: ``python -m tests.parts test|slow``.

A part is a target of the Makefile. Its output goes to ``build/test/<part>.log``, and to the terminal when it fails.
A part that fails hides no other: all run, and the end names each with its result and duration.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOGS: Final = Path("build") / "test"
STAGES: Final = {
    "test": (
        (("setup",),),
        # The first lane computes most of the time; the second waits for processes, the third for brokers and windows.
        (("lint", "test-unit", "test-analysis"), ("test-fresh", "test-long"), ("test-brokers",)),
    ),
    "slow": (
        (("setup",),),
        (("test-compiled",),),
        (("test-slow-unit",), ("test-slow-brokers",)),
        (("test-slow-alone",),),
    ),
}
"""Stages follow each other; the lanes of a stage run side by side; the parts of a lane follow each other."""
_VERDICT: Final = re.compile(r"^=+ (\d+ (?:passed|failed|error).*?) =+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    part: str
    duration_s: float
    cpu_s: float
    has_passed: bool
    verdicts: Sequence[str]
    """The closing line of each run of pytest."""

    def __str__(self) -> str:
        result = "passed" if self.has_passed else "FAILED"
        took = f"in {self.duration_s:4.0f} s, {self.cpu_s:4.0f} s of CPU"
        return f"{self.part:18} {result} {took}  {'; '.join(self.verdicts)}".rstrip()


def run(part: str) -> Result:
    log = LOGS / f"{part}.log"
    print(f"{part:18} begins (tail -f {log})", flush=True)
    start_s = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        command = ["make", "--no-print-directory", part]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)  # its own CPU time and that of its children
        process.returncode = os.waitstatus_to_exitcode(status)
    said = log.read_text(encoding="utf-8", errors="replace")
    cpu_s = used.ru_utime + used.ru_stime
    result = Result(part, time.monotonic() - start_s, cpu_s, process.returncode == 0, _VERDICT.findall(said))
    print(result if result.has_passed else f"{said}\n{result}", flush=True)
    return result


def run_all(stages: Sequence[Sequence[Sequence[str]]]) -> list[Result]:
    """Run all parts; none after a set-up that failed."""
    results: list[Result] = []
    for stage in stages:
        with ThreadPoolExecutor(len(stage)) as lanes:
            for of_lane in lanes.map(lambda lane: [run(part) for part in lane], stage):
                results += of_lane
        if any(result.part == "setup" and not result.has_passed for result in results):
            break
    return results


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in STAGES:
        print(f"usage: python -m tests.parts {'|'.join(STAGES)}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    start_s = time.monotonic()
    results = run_all(STAGES[arguments[0]])
    print("\n" + "\n".join(map(str, results)))
    failed = [result.part for result in results if not result.has_passed]
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    print(f"{verdict}, in {(time.monotonic() - start_s) / 60:.1f} minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
