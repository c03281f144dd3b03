"""A quota file is written whole or not at all, and what cannot be written is known before anything is read."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from analysis.cli import analyze
from analysis.errors import AnalysisError
from analysis.recommend.output import create
from analysis.spark import session

TARGET = "p99 throttle < 3 s"


def refused(out: Path | str, *arguments: str) -> Result:
    ran = CliRunner().invoke(
        analyze, ["recommend", "--warehouse", "nowhere", "--target", TARGET, "--out", str(out), *arguments]
    )
    assert ran.exit_code == 2, ran.output
    assert "Traceback" not in ran.stderr
    return ran


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start", start)


def test_created_quota_file_keeps_its_bytes_and_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    create(path, "quotas: []\r\n")
    new = tmp_path / "new"
    new.touch()
    assert path.read_bytes() == b"quotas: []\r\n"
    assert path.stat().st_mode == new.stat().st_mode, "as whoever runs it makes files"
    with pytest.raises(AnalysisError, match=r"quotas\.yaml cannot be written: File exists"):
        create(path, "quotas: []\n")
    assert path.read_bytes() == b"quotas: []\r\n"


def test_quota_file_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"quotas\.yaml cannot be written: File too large"), limited_files(0):
        create(tmp_path / "quotas.yaml", "quotas: []\n")
    assert list(tmp_path.iterdir()) == []


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let this process write no longer files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_existing_output_path_is_refused_before_spark_starts(no_spark: None, tmp_path: Path) -> None:
    file, pipe, link = (tmp_path / name for name in ("quotas.yaml", "pipe", "link"))
    file.write_text("quotas: []\n")
    os.mkfifo(pipe)
    link.symlink_to("elsewhere.yaml")
    for path in (file, pipe, link, tmp_path):
        assert f"{path} exists already: write to another file" in refused(path).stderr
    assert file.read_text() == "quotas: []\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("taken/quotas.yaml", "Not a directory"),
        ("taken/deeper/quotas.yaml", "Not a directory"),
        ("nowhere/quotas.yaml", "No such file or directory"),
        ("missing/quotas.yaml", "No such file or directory"),
        (f"{'q' * 300}.yaml", "File name too long"),
        (f"{'q' * 300}/quotas.yaml", "File name too long"),
    ],
)
def test_unwritable_output_path_is_refused_before_spark_starts(
    no_spark: None, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "taken").touch()
    (tmp_path / "nowhere").symlink_to("nothing")
    assert f"cannot be written: {said}" in refused(tmp_path / name).stderr
    assert {path.name for path in tmp_path.iterdir()} == {"taken", "nowhere"}


def test_a_directory_that_takes_no_files_is_refused_at_once(
    no_spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> NoReturn:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    assert "cannot be written: Read-only file system" in refused(tmp_path / "quotas.yaml").stderr


@pytest.mark.parametrize("headroom", ["nan", "inf", "-inf", "1e300", "-0.1"])
def test_headroom_that_is_no_finite_number_is_refused(no_spark: None, tmp_path: Path, headroom: str) -> None:
    assert "Invalid value for '--headroom'" in refused(tmp_path / "quotas.yaml", f"--headroom={headroom}").stderr
