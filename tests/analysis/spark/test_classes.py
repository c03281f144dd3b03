"""The archive of Java's classes: made whole by the run that finds none, and used by those after it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.spark import classes, session
from analysis.spark.session import SparkSettings


@pytest.fixture
def java(tmp_path: Path) -> Path:
    java = tmp_path / "java"
    java.write_bytes(b"")
    return java


def test_another_java_has_another_archive(java: Path, tmp_path: Path) -> None:
    first = classes.archive(tmp_path / "kept", java)
    assert first == classes.archive(tmp_path / "kept", java)
    os.utime(java, (0, 0))
    assert first != classes.archive(tmp_path / "kept", java)
    assert first.parent.is_dir()


def test_it_is_made_where_there_is_none(java: Path, tmp_path: Path) -> None:
    kept = classes.archive(tmp_path / "our kept", java)
    assert f'"-XX:ArchiveClassesAtExit={kept.with_suffix("")}.{os.getpid()}.part"' in classes.option(kept)
    kept.write_bytes(b"")
    assert f'"-XX:SharedArchiveFile={kept}"' in classes.option(kept)


def test_a_jvm_that_made_none_leaves_nothing(java: Path, tmp_path: Path) -> None:
    kept = classes.archive(tmp_path, java)
    classes.finish(kept, subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE))
    assert not kept.exists()


def test_a_folder_that_cannot_be_made(java: Path) -> None:
    with pytest.raises(AnalysisError, match=r"^--java-cache .*/java/kept: Not a directory$"):
        classes.archive(java / "kept", java)


def test_it_is_for_the_jvm_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = SparkSettings(java_cache=tmp_path)
    assert "ArchiveClassesAtExit" in session.chosen(asked)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "spark.driver.extraJavaOptions" not in session.chosen(asked)


@pytest.mark.spark
@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_two_runs(tmp_path: Path) -> None:
    """They end with an error after the start: what matters here is the start."""
    kept = tmp_path / "java cache"

    def run() -> str:
        command = ["report", "--warehouse", str(tmp_path / "none"), "--java-cache", str(kept)]
        ran = subprocess.run(
            [sys.executable, "-m", "analysis", *command], capture_output=True, text=True, timeout=250, check=False
        )
        assert ran.returncode == 2
        assert ran.stdout == ""
        return ran.stderr

    first = run()
    [made] = kept.iterdir()
    assert made.suffix == ".jsa"
    before = made.stat().st_mtime_ns
    assert run() == first, "and neither says anything of classes"
    assert [each.stat().st_mtime_ns for each in kept.iterdir()] == [before]
