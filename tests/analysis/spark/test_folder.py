from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

pytestmark = pytest.mark.spark


def test_a_folder(spark: SparkSession, tmp_path: Path) -> None:
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


def test_what_the_file_system_will_not_do_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r'^nowhere://x: No FileSystem for scheme "nowhere"$'):
        Folder(spark, "nowhere://x")
    with pytest.raises(AnalysisError, match=r"File .* does not exist"):
        Folder(spark, str(tmp_path)).read("not there")
