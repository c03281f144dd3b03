"""Ingestion from files, by a real streaming query; from a topic it is tests/integration/test_ingest.py."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from analysis.charges import with_defaults
from analysis.errors import AnalysisError, RunError
from analysis.ingest import files
from analysis.ingest.job import Ingestion, Tally
from analysis.ingest.running import run
from analysis.ingest.source import KEPT_BYTES, Source
from analysis.ingest.warehouse import Warehouse
from analysis.schema import MOST_DOCUMENT_BYTES, TABLES
from analysis.spark.folder import Folder
from analysis.spark.writer import ASIDE, Writer
from config.usage import UsageFiles
from proxy.usage.documents import Document as Shipped
from proxy.usage.files import FileSink
from tests.analysis.records import BEGIN, Document, document, in_order, row, stored, write_jsonl

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
        self.tasks = 0
        """How many a batch has; 0: as many as Spark chooses."""

    def add(self, name: str, *documents: Document | str) -> None:
        write_jsonl(self.files / f"{name}.jsonl", documents)

    def ingest(self) -> Tally:
        """Take in all that is there, as a process of its own would."""
        ingestion = Ingestion(self.source(), self.warehouse, self.told.append)
        run(ingestion, str(self.checkpoint), None)
        return ingestion.total

    def source(self) -> Source:
        found = files.source(self.spark, str(self.files), 1000)
        return Source(found.stream.repartition(self.tasks), found.texts) if self.tasks else found

    def usage(self) -> list[dict[str, Any]]:
        usage, keys = (
            with_defaults(self.spark.read.schema(TABLES[table]).parquet(f"{self.warehouse}/{table}"))
            for table in ("usage", "keys")
        )
        names = keys.drop("date", "hour", "batch").distinct()
        return in_order(usage.join(names, "key").toArrow().to_pylist())

    def parts(self) -> list[Path]:
        """Partitions of the table that have files, with all that is anywhere in it."""
        table = Path(self.warehouse) / "usage"
        return sorted({file.parent.relative_to(table) for file in table.rglob("*.parquet")})

    def rejected(self) -> list[tuple[str, bytes, str]]:
        found = self.spark.read.parquet(f"{self.warehouse}/rejected").collect()
        return sorted((Path(each.file).name, bytes(each.value), each.fault) for each in found)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


def test_ingest_stores_each_document_once(site: Site) -> None:
    documents = [document(seq, ROWS, second=HOUR_S * seq / 2) for seq in range(4)]
    site.add("a", documents[0], documents[1], documents[1])
    assert site.ingest() == Tally(documents=2, rows=4, duplicates=1)
    site.add("b", documents[0], documents[2], documents[3])
    assert site.ingest() == Tally(documents=2, rows=4, duplicates=1)
    assert site.ingest() == Tally()
    assert site.usage() == in_order(stored(documents))


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


def test_late_document_is_stored_in_its_own_hour_and_counted(site: Site) -> None:
    site.add("a", document(7, ROWS, second=5 * HOUR_S))
    assert site.ingest() == Tally(documents=1, rows=2, missing=7), "numbers begin at 0"
    site.add("b", document(1, ROWS, second=0), document(8, ROWS, second=5 * HOUR_S + 1))
    assert site.ingest() == Tally(documents=2, rows=4, late=1, missing=-1)
    assert [part.parts[1] for part in site.parts()] == ["hour=12", "hour=17", "hour=17"]
    assert [each["time"].hour for each in site.usage()].count(12) == 2


def test_missing_documents_are_counted_across_runs(site: Site) -> None:
    site.add("a", document(0, ROWS), document(3, [row("eve", "sluice:other")], dropped_documents=1))
    found = site.ingest()
    assert found == Tally(documents=2, rows=3, missing=2, dropped=1, rows_of_others=1)
    assert str(found) == "2 documents, 3 rows, 2 missing, 1 dropped by proxies, 1 row of sluice:other"
    site.add("b", document(2, ROWS), document(5, ROWS, second=HOUR_S))
    assert site.ingest() == Tally(documents=2, rows=4, missing=0), "4 is, and 2 no more"


def test_unreadable_document_is_rejected_and_the_rest_stored(site: Site) -> None:
    damaged = document(2, ROWS)
    damaged["rows"]["user"] = ["alice"]
    site.add("a", "nonsense", document(0, ROWS), {**document(1, ROWS), "v": 2}, damaged)
    assert site.ingest() == Tally(documents=1, rows=2, rejected=3)
    told = [line for line in site.told if line.startswith("rejected: file:")]
    assert len(told) == 3
    names, values, faults = zip(*site.rejected(), strict=True)
    assert set(names) == {"a.jsonl"}
    assert b"nonsense" in values
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


def test_batch_that_was_published_and_not_committed_is_known(site: Site) -> None:
    documents = [document(0, ROWS), document(1, ROWS, second=HOUR_S)]
    site.add("a", *documents, "nonsense")
    site.ingest()
    commits = site.checkpoint / "commits"
    for left in [*commits.glob("*0"), *commits.glob(".*0.crc")]:
        left.unlink()
    assert site.ingest() == Tally(duplicates=2, rejected=1)
    assert len(site.rejected()) == 1
    assert site.usage() == in_order(stored(documents))


def test_a_new_checkpoint_reads_all_again_and_stores_nothing_twice(site: Site) -> None:
    site.add("a", *(document(seq, ROWS) for seq in range(3)))
    site.ingest()
    site.checkpoint = site.checkpoint.with_name("another")
    assert site.ingest() == Tally(duplicates=3)
    assert len(site.usage()) == 6


def test_documents_that_another_ingest_stored_meanwhile_are_known(site: Site) -> None:
    """Each has read the keys of the hour before the other writes into it."""
    site.add("a", document(0, ROWS))
    one, other = (Ingestion(site.source(), site.warehouse, site.told.append) for _ in range(2))
    for number, name in enumerate("bcd", 1):
        run(one, f"{site.checkpoint}-one", None)
        site.add(name, document(number, ROWS))
        run(other, f"{site.checkpoint}-other", None)
    run(one, f"{site.checkpoint}-one", None)
    assert site.usage() == in_order(stored(document(seq, ROWS) for seq in range(4)))
    assert (one.total.documents + other.total.documents, one.total.duplicates + other.total.duplicates) == (4, 4)


@pytest.mark.parametrize("table", ["usage", "documents", "rejected"])
def test_batch_that_is_half_in_place_is_stored_once(site: Site, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another ingest of the same files comes before the one that was killed is run again."""
    documents = [document(0, ROWS), document(1, ROWS, second=HOUR_S)]
    site.add("a", *documents, "nonsense")
    real = Folder.move

    def killed(folder: Folder, name: str, to: str) -> None:
        if to.startswith(table):
            raise OSError
        real(folder, name, to)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "move", killed)
        with pytest.raises(AnalysisError):
            site.ingest()
    first, site.checkpoint = site.checkpoint, site.checkpoint.with_name("another")
    assert site.ingest() == Tally(duplicates=2, rejected=1)
    site.checkpoint = first
    assert site.ingest() == Tally(duplicates=2, rejected=1)
    assert site.usage() == in_order(stored(documents))


def test_duplicate_documents_in_several_tasks_are_stored_once(site: Site) -> None:
    documents = [document(seq, ROWS) for seq in range(6)]
    for number in range(3):
        site.add(f"file-{number}", *documents[2 * number :], "nonsense")
    site.tasks = 6
    assert site.ingest() == Tally(documents=6, rows=12, duplicates=6, rejected=3)
    assert site.usage() == in_order(stored(documents))


def test_documents_without_rows_are_stored_and_known(site: Site) -> None:
    site.add("a", document(0, []), document(0, []))
    assert site.ingest() == Tally(documents=1, duplicates=1)


def test_files_that_are_not_complete_are_not_read(site: Site) -> None:
    site.add("a", document(0, ROWS))
    write_jsonl(site.files / "b.part", [document(1, ROWS)])
    (site.files / "edge-2").mkdir()
    site.add("edge-2/c", {**document(0, ROWS), "instance": "edge-2"})
    assert site.ingest().documents == 2


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(), min_size=20, max_size=40, unique=True))
def test_files_of_any_instance_are_read(spark: SparkSession, tmp_path_factory: Any, names: list[str]) -> None:
    """As the proxy names them."""
    folder = tmp_path_factory.mktemp("names")
    site = Site(spark, folder)

    async def write() -> None:
        for seq, name in enumerate(
            [*names, "[prod] edge-1", ".hidden", "_", "x" * 300, "東京", "大阪", "a/../b", "\x00"]
        ):
            sink = FileSink(UsageFiles(directory=site.files), name, f"boot-{seq}")
            await sink.write(Shipped(seq, 2, json.dumps(document(seq, ROWS)).encode()))
            await sink.close()

    asyncio.run(write())
    written = sorted(site.files.iterdir())
    assert site.ingest() == Tally(documents=len(written), rows=2 * len(written))


def test_file_that_spark_does_not_read_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.add("a", document(0, ROWS))
    site.add("_b", document(1, ROWS))
    (site.files / ".c").mkdir()
    site.add(".c/d", document(2, ROWS))
    assert site.ingest() == Tally(documents=1, rows=2)
    assert capsys.readouterr().err == (
        f"not read: {site.files}/_b.jsonl and 1 more: rename what begins with _ or ., Spark ignores such files\n"
    )


def test_oversized_and_non_text_lines_are_rejected_as_bytes(site: Site) -> None:
    """For DuckDB and Spark alike; and what stands behind it is taken in."""
    no_text = b"\xff\xfe \x00"
    lines = [b"x" * (MOST_DOCUMENT_BYTES + 5), no_text, b"", json.dumps(document(0, ROWS)).encode()]
    (site.files / "a.jsonl").write_bytes(b"\n".join(lines))
    of_no_time = [
        document(seq, ROWS, time_ms=time_ms) for seq, time_ms in enumerate((0, 4_070_908_800_000, 10**18, -5), 1)
    ]
    site.add("b", *of_no_time)
    tally = site.ingest()
    assert (tally.documents, tally.rejected, tally.wrong_clock) == (1, 7, 4)
    assert str(tally).startswith("1 documents, 2 rows, 7 rejected (4 of a wrong clock)")
    query = "SELECT line, size, value, fault FROM read_parquet(?) ORDER BY file, line"
    found = duckdb.execute(query, [f"{site.warehouse}/rejected/*/*.parquet"]).fetchall()
    long = len(lines[0])
    assert [each[:3] for each in found[:3]] == [(1, long, lines[0][:KEPT_BYTES]), (2, 4, no_text), (3, 0, b"")]
    assert found[0][3] == f"has {long} bytes, and may have {MOST_DOCUMENT_BYTES}"
    assert [each[3].partition(",")[0] for each in found[3:]] == [
        "wrong clock: time_ms is 0",
        "wrong clock: time_ms is 4070908800000",
        "wrong clock: time_ms is 1000000000000000000",
        "wrong clock: time_ms is -5",
    ]
    assert no_text in [value for _, value, _ in site.rejected()]


def test_files_of_workers_that_are_not_there_end_the_batch_and_come_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that the machines of a cluster do not share: its documents must not be known as stored."""
    publish = Warehouse.publish

    def elsewhere(tables: Warehouse, writer: Writer, attempt: str, files: Iterable[tuple[str, str]]) -> None:
        written = list(files)
        writer.folder.remove(ASIDE)
        publish(tables, writer, attempt, written)

    site.add("a", document(0, ROWS))
    with monkeypatch.context() as broken:
        broken.setattr(Warehouse, "publish", elsewhere)
        with pytest.raises(RunError, match="of 3 files that workers wrote are not there"):
            site.ingest()
    assert site.ingest() == Tally(documents=1, rows=2)


def test_mark_of_the_version_that_was_cut_off_is_written_again(site: Site) -> None:
    mark = Path(site.warehouse) / "sluice-warehouse.json"
    mark.parent.mkdir()
    mark.touch()
    Ingestion(site.source(), site.warehouse, site.told.append)
    assert json.loads(mark.read_text(encoding="utf-8")) == {"version": 3}


def test_a_warehouse_of_a_version_to_come_is_left_alone(site: Site) -> None:
    Path(site.warehouse).mkdir()
    (Path(site.warehouse) / "sluice-warehouse.json").write_text('{"version": 4}')
    with pytest.raises(AnalysisError, match="is a warehouse of version 4, and this Sluice knows 3"):
        site.ingest()
