from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.ingest.known import Hour
from analysis.ingest.publishing import Publication, remove_left
from analysis.spark.folder import Folder

pytestmark = pytest.mark.spark

NOON, LATER = Hour("2026-03-01", 12), Hour("2026-03-02", 3)


def files(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in sorted(place.rglob("*.parquet"))}


def test_nothing_is_seen_before_it_is_complete(spark: SparkSession, tmp_path: Path) -> None:
    publication = Publication(Folder(spark, str(tmp_path)), "b-0")
    for hour, content in ((NOON, b"1"), (LATER, b"2"), (NOON, b"3")):
        publication.add(hour, content)
    assert [each.name for each in tmp_path.iterdir()] == [".staging-b-0"]
    publication.publish()
    assert files(tmp_path) == {
        "date=2026-03-01/hour=12/batch=b-0/part-00000.parquet": b"1",
        "date=2026-03-01/hour=12/batch=b-0/part-00001.parquet": b"3",
        "date=2026-03-02/hour=03/batch=b-0/part-00000.parquet": b"2",
    }
    assert not (tmp_path / ".staging-b-0").exists()


def test_a_batch_replaces_what_it_left_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    for batch, contents in (("b-0", [b"other"]), ("b-1", [b"one", b"two"]), ("b-1", [b"again"])):
        publication = Publication(folder, batch)
        for content in contents:
            publication.add(NOON, content)
        publication.publish()
    assert list(files(tmp_path).values()) == [b"other", b"again"]


def test_nothing_of_an_earlier_try_gets_into_the_next(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    killed = Publication(folder, "b-0")
    killed.add(NOON, b"half")
    killed.add(NOON, b"of it")
    publication = Publication(folder, "b-0")
    publication.add(NOON, b"all")
    publication.publish()
    assert list(files(tmp_path).values()) == [b"all"]


def test_what_was_left_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    remove_left(folder)
    Publication(folder, "b-0").add(NOON, b"left")
    folder.write("date=2026-03-01/hour=12/batch=b-0/part.parquet", b"stays")
    remove_left(folder)
    assert list(files(tmp_path).values()) == [b"stays"]
