from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

pytestmark = pytest.mark.spark


def test_folder_writes_reads_lists_and_removes_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path / "there"))
    assert not folder.exists()
    assert folder.names("*") == []
    folder.write("b/note", "grüße\n")
    folder.write("b/note", "grüße, again\n")
    folder.write("a/other", "")
    assert folder.exists("b/note")
    assert folder.read("b/note") == "grüße, again\n"
    assert folder.names("*") == ["a", "b"]
    assert folder.names("*/*") == ["note", "other"]
    folder.remove("b")
    assert folder.names("*") == ["a"]


def test_bytes_are_written_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    Folder(spark, str(tmp_path)).write("a b/öäü #1%20.bin", content)
    assert (tmp_path / "a b" / "öäü #1%20.bin").read_bytes() == content


def test_directory_is_moved_and_its_parents_created(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder.write("new/file", "newer")
    folder.move("new", "nowhere/yet")
    assert folder.names("*") == ["nowhere"]
    assert folder.read("nowhere/yet/file") == "newer"
    with pytest.raises(AnalysisError, match=r"not there"):
        folder.move("not there", "there/place")


def test_file_system_failure_is_reported_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r'^nowhere://x: No FileSystem for scheme "nowhere"$'):
        Folder(spark, "nowhere://x")
    with pytest.raises(AnalysisError, match=r"not there: No such file or directory$"):
        Folder(spark, str(tmp_path)).read("not there")


def test_folder_entries_have_path_size_and_time(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder.write("a/b/note", "grüße")
    folder.write("a/c/note", "")
    assert [(entry.path, entry.size_bytes) for entry in folder.entries("a/*/note")] == [
        ("a/b/note", 7),
        ("a/c/note", 0),
    ]
    (directory,) = folder.entries("a/b")
    assert directory.size_bytes == 0
    assert directory.modified_s == pytest.approx((tmp_path / "a" / "b").stat().st_mtime, abs=1)
    assert folder.size_bytes("a") == 7
    assert folder.on_disk("a/b/note").read_text(encoding="utf-8") == "grüße"


def test_file_created_twice_is_refused_the_second_time(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    assert folder.create("lock", "one")
    assert not folder.create("lock", "two")
    folder.write("lock", "three")
    assert folder.read("lock") == "three"


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_file_that_cannot_be_written_stays_what_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_disk: bool
) -> None:
    """On a disk by Python, on others by Hadoop: both write aside and rename."""
    monkeypatch.setattr(Folder, "is_on_disk", is_on_disk)
    folder = Folder(spark, str(tmp_path))
    folder.write("a/note", "one")
    folder.write("a/note", "two")
    assert folder.read("a/note") == "two"
    (tmp_path / "a" / "note.aside").mkdir()
    (tmp_path / "a" / "note.aside" / "in the way").touch()
    with pytest.raises(AnalysisError):
        folder.write("a/note", "three")
    assert (tmp_path / "a" / "note").read_text(encoding="utf-8") == "two"


def test_move_that_was_cut_off_is_completed(spark: SparkSession, tmp_path: Path) -> None:
    """As on an object store, which moves one file after the other."""
    folder = Folder(spark, str(tmp_path))
    for place in ("aside/b", "there/a"):
        folder.write(place, place)
    folder.write("aside/half", "whole")
    folder.write("there/half", "ha")
    folder.move("aside", "there")
    assert folder.names("*") == ["there"]
    assert {name: folder.read(f"there/{name}") for name in folder.names("there/*")} == {
        "a": "there/a",
        "b": "aside/b",
        "half": "whole",
    }
