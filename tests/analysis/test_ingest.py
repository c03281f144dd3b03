"""Ingestion from files, by a real streaming query; from a topic it is tests/integration/test_ingest.py."""

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from analysis import warehouse as tables
from analysis.ingest import Ingestion, Tally
from analysis.sources import files
from tests.analysis.records import BEGIN, Document, document, row, usage_frame, write_jsonl

pytestmark = pytest.mark.spark

ROWS = [row("alice", bytes_in=7), row("bob", bytes_in=5)]
HOUR_S = 3600


class Site:
    """A directory of usage files and the warehouse that takes them in."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.files = folder / "files"
        self.files.mkdir()
        self.warehouse = str(folder / "warehouse")
        self.checkpoint = folder / "checkpoint"
        self.told: list[str] = []

    def add(self, name: str, *documents: Document | str) -> None:
        write_jsonl(self.files / f"{name}.jsonl", documents)

    def ingest(self) -> Tally:
        """Take in all that is there, as a process of its own would."""
        ingestion = Ingestion(self.spark, self.warehouse, self.told.append)
        self.run(ingestion)
        return ingestion.total

    def run(self, ingestion: Ingestion) -> None:
        stream = files.stream(self.spark, str(self.files), 1000)
        writer = stream.writeStream.foreachBatch(ingestion.publish).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()

    def usage(self) -> DataFrame:
        return tables.usage(self.spark, self.warehouse)

    def rejected(self) -> list[tuple[str, str, str]]:
        found = self.spark.read.parquet(tables.path_of(self.warehouse, tables.REJECTED)).collect()
        return sorted((Path(each.file).name, each.value, each.fault) for each in found)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


def test_what_comes_is_stored_once(site: Site) -> None:
    documents = [document(seq, ROWS, second=HOUR_S * seq / 2) for seq in range(4)]
    site.add("a", documents[0], documents[1], documents[1])
    assert site.ingest() == Tally(documents=2, rows=4, duplicates=1)
    site.add("b", documents[0], documents[2], documents[3])
    assert site.ingest() == Tally(documents=2, rows=4, duplicates=1)
    assert site.ingest() == Tally()
    assertDataFrameEqual(site.usage(), usage_frame(site.spark, documents), ignoreNullable=True)


def test_every_row_is_there_for_a_reader_that_is_not_spark(site: Site) -> None:
    site.add("a", *(document(seq, ROWS, second=HOUR_S * seq) for seq in range(3)))
    site.ingest()
    table = f"{site.warehouse}/usage/date=*/hour=*/batch=*/*.parquet"
    query = "SELECT date::VARCHAR, hour, sum(bytes_in), min(time) FROM read_parquet(?, hive_partitioning=true)"
    found = duckdb.execute(f"{query} GROUP BY ALL ORDER BY 2", [table]).fetchall()
    assert [(date, int(hour), total) for date, hour, total, _ in found] == [
        ("2026-03-01", 12 + at, 12) for at in range(3)
    ]
    assert found[0][3].astimezone(BEGIN.tzinfo) == BEGIN


def test_what_comes_late_lands_in_its_own_hour_and_is_counted(site: Site) -> None:
    site.add("a", document(7, ROWS, second=5 * HOUR_S))
    assert site.ingest().late == 0
    site.add("b", document(1, ROWS, second=0), document(8, ROWS, second=5 * HOUR_S + 1))
    assert site.ingest() == Tally(documents=2, rows=4, late=1)
    assert site.usage().where("hour = 12").count() == 2


def test_what_cannot_be_read_is_kept_aside_and_stops_nothing(site: Site) -> None:
    damaged = document(2, ROWS)
    damaged["rows"]["user"] = ["alice"]
    site.add("a", "nonsense", document(0, ROWS), {**document(1, ROWS), "v": 2}, damaged)
    assert site.ingest() == Tally(documents=1, rows=2, rejected=3)
    told = [line for line in site.told if line.startswith("rejected: file:")]
    assert len(told) == 3
    names, values, faults = zip(*site.rejected(), strict=True)
    assert set(names) == {"a.jsonl"}
    assert "nonsense" in values
    assert sorted(fault.split(":")[0] for fault in faults) == [
        "arrays differ in length",
        "is not JSON",
        "version 2 is not known",
    ]


def test_a_damaged_copy_does_not_keep_the_whole_one_away(site: Site) -> None:
    damaged = document(0, ROWS)
    damaged["rows"]["user"] = ["alice"]
    site.add("a", damaged, document(0, ROWS), document(0, ROWS))
    assert site.ingest() == Tally(documents=1, rows=2, duplicates=1, rejected=1)


def test_a_batch_that_was_published_and_not_committed_is_replaced(site: Site) -> None:
    documents = [document(0, ROWS), document(1, ROWS, second=HOUR_S)]
    site.add("a", *documents, "nonsense")
    site.ingest()
    commits = site.checkpoint / "commits"
    for left in [*commits.glob("*0"), *commits.glob(".*0.crc")]:
        left.unlink()
    assert site.ingest() == Tally(documents=2, rows=4, rejected=1)
    assert len(site.rejected()) == 1
    assertDataFrameEqual(site.usage(), usage_frame(site.spark, documents), ignoreNullable=True)


def test_a_new_checkpoint_reads_all_again_and_stores_nothing_twice(site: Site) -> None:
    site.add("a", *(document(seq, ROWS) for seq in range(3)))
    site.ingest()
    site.checkpoint = site.checkpoint.with_name("another")
    assert site.ingest() == Tally(duplicates=3)
    assert site.usage().count() == 6


def test_what_a_killed_writer_left_is_removed(site: Site) -> None:
    site.add("a", document(0, ROWS))
    site.ingest()
    left = Path(site.warehouse) / "usage" / ".spark-staging-1" / "date=2026-03-01"
    left.mkdir(parents=True)
    Ingestion(site.spark, site.warehouse, site.told.append)
    assert not left.parent.exists()


def test_files_that_are_not_complete_are_not_read(site: Site) -> None:
    site.add("a", document(0, ROWS))
    write_jsonl(site.files / "b.part", [document(1, ROWS)])
    (site.files / "edge-2").mkdir()
    site.add("edge-2/c", {**document(0, ROWS), "instance": "edge-2"})
    assert site.ingest().documents == 2
