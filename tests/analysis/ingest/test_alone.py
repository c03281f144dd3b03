"""Locks of ingestion: who comes second says so, and who is killed leaves none."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.errors import AnalysisError, RunError
from analysis.ingest.alone import Company, held

HOLD = """
import signal, sys
from analysis.ingest.alone import held
with held(sys.argv[1]):
    print("held", flush=True)
    signal.pause()
"""


def test_the_second_on_a_checkpoint_ends_and_says_who_is_first(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "checkpoint"
    with held(str(place)):
        said = rf"another ingest \(process {os.getpid()}\) is at work on checkpoint"
        with pytest.raises(RunError, match=said), held(place.as_uri()):
            pass
        with held(str(tmp_path / "another")):
            pass
    with held(str(place)):
        pass


def test_a_kill_leaves_no_lock(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"process {other.pid}"), held(str(tmp_path)):
            pass
        other.send_signal(signal.SIGKILL)
    with held(str(tmp_path)):
        pass


def test_who_is_alone_at_a_warehouse_knows_it(tmp_path: Path) -> None:
    first = Company(str(tmp_path))
    with first.alone() as alone:
        assert alone
    second = Company(str(tmp_path))
    with second.alone() as alone:
        assert not alone
    with first.alone() as alone:
        assert not alone
    del first
    with Company(str(tmp_path)).alone() as alone:
        assert not alone


def test_elsewhere_there_is_no_lock() -> None:
    with held("hdfs://nn/sluice/checkpoints/x"), held("hdfs://nn/sluice/checkpoints/x"):
        pass
    with Company("s3a://bucket/sluice").alone() as alone:
        assert alone


def test_what_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(AnalysisError, match=f"{tmp_path}/file/checkpoint: not a directory"),
        held(f"{tmp_path}/file/checkpoint"),
    ):
        pass
