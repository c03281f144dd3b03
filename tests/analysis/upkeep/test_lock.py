"""Who may be at work on a warehouse."""

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Folder
from analysis.upkeep import lock
from analysis.upkeep.lock import Lock
from tests.harness.clock import Clock
from tests.harness.polling import wait_until

pytestmark = pytest.mark.spark

NAME = ".upkeep-lock-7"
NEXT = ".upkeep-lock-8"


@pytest.fixture
def folder(spark: SparkSession, warehouse: str) -> Folder:
    folder = Folder(spark, warehouse)
    folder.write("there", "")
    return folder


def held(folder: Folder, *, host: str, pid: int, renewed_s: float) -> None:
    said = {"id": "another", "what": "compact", "host": host, "pid": pid, "renewed_s": renewed_s}
    folder.write(NAME, json.dumps(said))


def gone() -> int:
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def said(folder: Folder, name: str) -> dict[str, Any]:
    found = json.loads(folder.read(name))
    assert isinstance(found, dict)
    return found


def test_second_lock_is_refused_and_names_the_holder(folder: Folder) -> None:
    with Lock(folder, "compact", Clock()):
        first = (
            rf"^compact \(process {os.getpid()} on {socket.gethostname()}\) is at work on this warehouse.*"
            r"try again when it has finished$"  # what is killed here is known to be
        )
        with pytest.raises(AnalysisError, match=first), Lock(folder, "expire", Clock()):
            pass
    with Lock(folder, "expire", Clock()):
        pass


def test_released_lock_is_marked_as_over(folder: Folder) -> None:
    held(folder, host="elsewhere", pid=1, renewed_s=0)
    with Lock(folder, "compact", Clock()):
        assert not said(folder, NEXT)["over"]
    assert folder.names(".upkeep*") == [NEXT]
    assert said(folder, NEXT)["over"]


def test_lock_of_a_dead_process_is_taken_over(folder: Folder) -> None:
    held(folder, host=socket.gethostname(), pid=gone(), renewed_s=1000)
    with Lock(folder, "compact", Clock()):
        assert folder.names(".upkeep*") == [NEXT]


def test_lock_of_another_machine_is_taken_over_after_ten_minutes(folder: Folder) -> None:
    clock = Clock()
    held(folder, host="elsewhere", pid=1, renewed_s=1000)
    clock.now_s = 1599
    told = r"process 1 on elsewhere.* was seen 599 s ago.*; if it was killed, 10 minutes after it was seen last$"
    with pytest.raises(AnalysisError, match=told), Lock(folder, "x", clock):
        pass
    clock.now_s = 1600
    with Lock(folder, "x", clock):
        pass


def test_half_written_lock_is_as_old_as_its_file(folder: Folder) -> None:
    """Or was cut off in it."""
    clock = Clock()
    clock.now_s = time.time()
    folder.write(NAME, '{"id": ')
    with pytest.raises(AnalysisError, match="another program"), Lock(folder, "compact", clock):
        pass
    clock.now_s += 700
    with Lock(folder, "compact", clock):
        pass


def test_holder_whose_lock_was_taken_over_stops(folder: Folder) -> None:
    clock = Clock()
    with Lock(folder, "compact", clock) as taken:
        taken.check()
        held(folder, host="elsewhere", pid=7, renewed_s=1000)
        with pytest.raises(RunError, match=r"process 7 on elsewhere\) has taken over"):
            taken.check()
    assert said(folder, NAME)["id"] == "another"


@pytest.mark.parametrize("others", [1, 2, 3])
def test_expired_lock_goes_to_the_fastest_and_others_fail(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """One after the other, since this one has seen that nobody has it any more."""
    held(folder, host="elsewhere", pid=1, renewed_s=0)
    read = Folder.read
    faster: list[Lock] = []

    def late(read_from: Folder, name: str) -> str:
        text = read(read_from, name)
        if not faster:
            faster.extend(Lock(folder, "expire", Clock()) for _ in range(others))
            for each in faster[:-1]:
                with each:
                    pass
            faster[-1].__enter__()
        return text

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "read", late)
        with pytest.raises(AnalysisError, match=r"expire .* has just started"), Lock(folder, "compact", Clock()):
            pass
    faster[-1].check()
    faster[-1].__exit__(None, None, None)


def test_two_simultaneous_locks_leave_one_holder(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a store takes a condition, and does not hold to it: both look once more when both have written."""
    both = Barrier(2, timeout=60)

    def create(written: Folder, name: str, content: str) -> bool:
        both.wait()
        written.write(name, content)
        return True

    def settled(_: float) -> None:
        both.wait()

    def hold(wanted: Lock) -> bool:
        try:
            with wanted:
                both.wait()
        except AnalysisError:
            both.wait()
            return False
        return True

    monkeypatch.setattr(Folder, "create", create)
    monkeypatch.setattr(Folder, "is_on_disk", False)
    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=settled))  # threads of py4j sleep, too
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(hold, [Lock(folder, "x", Clock()) for _ in range(2)]))
    assert sorted(found) == [False, True]


def test_lock_is_renewed_during_a_long_step(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_RENEWED_S", 0.01)
    clock = Clock()
    with Lock(folder, "compact", clock):
        clock.now_s += 10_000
        renewed = f'"renewed_s": {clock.now_s}'  # as text: it may be read while it is written
        wait_until(lambda: renewed in folder.read(folder.names(".upkeep*")[-1]))
        with pytest.raises(AnalysisError, match="is at work"), Lock(folder, "expire", clock):
            pass
