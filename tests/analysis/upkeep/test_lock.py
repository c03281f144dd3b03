"""Who may be at work on a warehouse."""

import json
import os
import socket
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Folder
from analysis.upkeep.lock import Lock

pytestmark = pytest.mark.spark

NAME = ".upkeep-lock"


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


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


def test_the_second_one_says_who_is_first(folder: Folder) -> None:
    with Lock(folder, "compact", Clock()):
        said = rf"^compact \(process {os.getpid()} on {socket.gethostname()}\) is at work on this warehouse.*try again"
        with pytest.raises(AnalysisError, match=said), Lock(folder, "expire", Clock()):
            pass
        assert folder.exists(NAME)
    assert not folder.exists(NAME)


def test_of_a_process_that_is_no_more_it_is_taken_over(folder: Folder) -> None:
    held(folder, host=socket.gethostname(), pid=gone(), renewed_s=1000)
    with Lock(folder, "compact", Clock()):
        pass
    assert folder.names("*") == ["there"]
    assert folder.names(".*") == []


def test_of_another_machine_when_it_was_not_renewed_for_long(folder: Folder) -> None:
    clock = Clock()
    held(folder, host="elsewhere", pid=1, renewed_s=1000)
    clock.now_s = 1599
    with pytest.raises(AnalysisError, match=r"process 1 on elsewhere.* was seen 599 s ago"), Lock(folder, "x", clock):
        pass
    clock.now_s = 1600
    with Lock(folder, "x", clock):
        pass


def test_one_that_was_cut_off_in_writing_it_holds_nothing(folder: Folder) -> None:
    folder.write(NAME, '{"id": ')
    with Lock(folder, "compact", Clock()):
        pass


def test_who_was_held_up_for_too_long_stops(folder: Folder) -> None:
    clock = Clock()
    with Lock(folder, "compact", clock) as lock:
        clock.now_s += 20
        lock.keep()
        held(folder, host="elsewhere", pid=7, renewed_s=1000)
        clock.now_s += 20
        with pytest.raises(RunError, match=r"process 7 on elsewhere\) has taken over"):
            lock.keep()
    assert folder.exists(NAME)


def test_it_is_renewed_while_the_work_goes_on(folder: Folder) -> None:
    clock = Clock()
    with Lock(folder, "compact", clock) as lock:
        clock.now_s += 31
        lock.keep()
        assert json.loads(folder.read(NAME))["renewed_s"] == 1031
