"""A quota file is written whole or not at all, and what cannot be written is known before anything is read."""

import os
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from analysis.cli import analyze
from analysis.errors import AnalysisError
from analysis.recommend.output import write
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


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    write(path, "quotas: []\n")
    new = tmp_path / "new"
    new.touch()
    assert path.stat().st_mode == new.stat().st_mode, "as whoever runs it makes files"
    write(path, "quotas: []\n# again\n")
    assert path.read_text() == "quotas: []\n# again\n"
    assert sorted(path.parent.iterdir()) == [new, path]
    path.chmod(0o640)
    write(path, "quotas: []\r\n")
    assert path.read_bytes() == b"quotas: []\r\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / ".quotas.yaml.new").symlink_to(theirs)
    write(tmp_path / "quotas.yaml", "quotas: []\n")
    assert theirs.read_text() == "theirs"
    assert (tmp_path / ".quotas.yaml.new").is_symlink()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(AnalysisError, match=r"quotas\.yaml cannot be written: No space left on device"):
        write(tmp_path / "quotas.yaml", "quotas: []\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_quota_file_that_is_there_is_not_replaced_unless_one_says_so(tmp_path: Path, force: bool) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: []\n")
    arguments = ["recommend", "--warehouse", str(tmp_path / "none"), "--target", TARGET, "--out", str(path)]
    ran = CliRunner().invoke(analyze, [*arguments, *(["--force"] if force else [])])
    assert ran.exit_code == 2
    assert (f"{path} is there already: write to another file" in ran.stderr) is not force
    assert path.read_text() == "quotas: []\n"


def test_a_link_is_never_replaced(tmp_path: Path) -> None:
    link = tmp_path / "quotas.yaml"
    link.symlink_to("elsewhere.yaml")
    assert "is a link, as Kubernetes mounts a ConfigMap" in refused(link, "--force").stderr


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_file_is_refused_at_once(no_spark: None, tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert f"{path} is no file" in refused(path, *(["--force"] if force else [])).stderr


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
def test_what_cannot_be_written_is_refused_at_once(no_spark: None, tmp_path: Path, name: str, said: str) -> None:
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
def test_a_headroom_is_a_number(no_spark: None, tmp_path: Path, headroom: str) -> None:
    assert "Invalid value for '--headroom'" in refused(tmp_path / "quotas.yaml", f"--headroom={headroom}").stderr
