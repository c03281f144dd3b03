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


def test_a_directory_takes_the_place_of_another(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder.write("new/file", "new")
    folder.write("there/place/old", "old")
    folder.move("new", "there/place")
    folder.write("new/file", "newer")
    folder.move("new", "nowhere/yet")
    assert folder.names("*") == ["nowhere", "there"]
    assert folder.names("there/place/*") == ["file"]
    assert folder.read("nowhere/yet/file") == "newer"
    with pytest.raises(AnalysisError, match=r"not there"):
        folder.move("not there", "there/place")


def test_file_system_failure_is_reported_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r'^nowhere://x: No FileSystem for scheme "nowhere"$'):
        Folder(spark, "nowhere://x")
    with pytest.raises(AnalysisError, match=r"File .* does not exist"):
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


def test_file_put_into_a_folder_keeps_its_bytes(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path / "there"))
    content = tmp_path / "content"
    content.write_bytes(bytes(range(256)))
    folder.put(content, "a/file")
    assert (tmp_path / "there" / "a" / "file").read_bytes() == content.read_bytes()
