"""``sluice analyze compact`` itself, killed at its work: what is on the disk then is the kernel's and Java's doing.

``test_compaction`` stops between any two changes, in one process; here nothing is tidied up that a program could.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.table.swaps import unfinished
from tests.analysis.records import document, row
from tests.analysis.upkeep.conftest import GRACE_S, Filled
from tests.harness.jars import java_cache
from tests.harness.process import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

HOURS = 4
"""The last one is never compacted."""
BATCHES = 30
"""Of each hour, with a file each: so many that setting them aside takes long enough to be met at it."""
ENDS_S = 300.0
MOMENTS = {
    "made": ".compacting/*/*.parquet",
    "half aside": ".replaced/*/date=*/hour=*/batch=*",
    "put right": ".replaced/*/*.swap.done",
    "written down": ".replaced/*/*.swap",
}
"""When it is killed: when something new is found there. Each run begins with what the one before has left."""


@pytest.fixture
def hours(filled: Filled) -> Filled:
    for number in range(HOURS * BATCHES):
        second = 3600 * (number // BATCHES) + number
        filled.publish(number, [document(number, [row("alice", bytes_in=number), row("bob")], second=second)])
    return filled


class Command:
    """Runs of ``compact``, each a process as a user has it."""

    def __init__(self, place: str, folder: Path) -> None:
        self._usage = Path(place, "usage")
        self._folder = folder
        self._aside = folder / "tmp"
        self._aside.mkdir()
        sluice = str(Path(sys.executable).parent / "sluice")
        # Spark's own files lie where the test's do: a kill leaves them.
        local = ["--master", "local[1]", "--conf", "spark.driver.memory=1g", "--conf", f"spark.local.dir={folder}"]
        local += java_cache()
        self._command = [sluice, "analyze", "compact", "--warehouse", place, *local]

    def start(self) -> Program:
        environment = {"TMPDIR": str(self._aside)}
        return Program("compact", self._command, self._folder / "log", environment=environment)

    def run(self) -> None:
        with self.start() as program:
            assert program.wait(ENDS_S) == 0, program.tail()

    def is_killed(self, pattern: str, kill: Callable[[Program], None]) -> None:
        """Start it, and kill it as soon as something new is there."""
        before = self._seen(pattern)
        with self.start() as program:
            deadline = time.monotonic() + ENDS_S
            while not self._seen(pattern) - before:
                assert program.is_running, program.tail()
                assert time.monotonic() < deadline, program.tail()
            kill(program)
            assert program.wait(ENDS_S) == -signal.SIGKILL, program.tail()

    def left(self) -> list[Path]:
        """Rows among its temporary files."""
        return sorted(self._aside.rglob("*.parquet"))

    def _seen(self, pattern: str) -> set[tuple[str, int]]:
        found = set()
        for path in self._usage.glob(pattern):
            try:
                found.add((str(path), path.stat().st_mtime_ns))
            except FileNotFoundError:  # it was, a moment ago
                continue
        return found


def over(hours: Filled) -> bool:
    (name,) = hours.usage.names(".upkeep*")
    return bool(json.loads(hours.usage.read(name))["over"])


def alone(program: Program) -> None:
    """As the kernel does where memory is short: its Java ends when it finds out, and may yet do what it was told."""
    os.kill(program.pid, signal.SIGKILL)


def with_java(program: Program) -> None:
    program.signal(signal.SIGKILL)


@pytest.mark.parametrize("moments", [["written down"], pytest.param([*MOMENTS], marks=pytest.mark.matrix)])
def test_killed_at_its_work_each_row_is_found_once_and_the_next_run_goes_on(
    hours: Filled, tmp_path: Path, moments: list[str]
) -> None:
    keys, rows = hours.keys(), hours.rows()
    command = Command(hours.place, tmp_path)
    for number, moment in enumerate(moments):
        command.is_killed(MOMENTS[moment], alone if number % 2 else with_java)
        assert hours.listed() == keys, moment
        assert not over(hours), moment
    assert hours.rows() == rows
    command.run()
    assert hours.rows() == rows
    assert hours.keys() == keys
    closed = {f"date=2026-03-01/hour={hour}": 1 for hour in range(12, 12 + HOURS - 1)}
    assert {hour: len(hours.files(hour)) for hour in closed} == closed
    assert unfinished(hours.usage) == {}
    assert over(hours)
    assert command.left() == []
    hours.now_s = time.time() + GRACE_S
    assert hours.compact().hours == 0
    assert hours.usage.names(".replaced/*") == []
    assert hours.keys() == keys
