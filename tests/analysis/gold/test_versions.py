"""Gold has versions: a report reads one of them to the end, whatever is made, killed or damaged beside it."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.gold import build
from analysis.gold.build import make
from analysis.gold.tables import TABLES as EVERY
from analysis.spark.writer import Writer
from analysis.warehouse import Period, connected, gold, opened
from tests.analysis.ingesting import ingest
from tests.analysis.records import Document, document, row

pytestmark = pytest.mark.spark

ALL = Period()
TABLES = ("client", "users", "documents")


def of_second(seq: int, *, day: int = 0) -> Document:
    return document(seq, [row("alice", bytes_in=1 << seq)], second=86_400 * day + seq)


def sums(connection: duckdb.DuckDBPyConnection) -> list[int]:
    """The bytes of three tables: of clients, of users, and by the numbers of documents."""
    asked = ["sum(bytes_in) FROM client", "sum(bytes_in) FROM users", "sum(1 << seq::INT) FROM documents"]
    return [int(connection.execute(f"SELECT {each}").fetchall()[0][0]) for each in asked]


def found(warehouse: Path) -> list[int]:
    return sums(opened(str(warehouse), ALL, TABLES))


def versions(warehouse: Path) -> set[str]:
    return {each.relative_to(warehouse / "gold").as_posix() for each in (warehouse / "gold").rglob("made=*")}


class Site:
    """A warehouse."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.warehouse = spark, folder, folder / "warehouse"

    def add(self, *documents: Document) -> None:
        ingest(self.spark, self.folder, documents, name=f"file-{len([*self.folder.rglob('*.jsonl')])}")

    def make(self) -> int:
        return make(self.spark, str(self.warehouse))


@pytest.fixture(scope="module")
def pattern(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document of a day that is over, and one of the newest."""
    site = Site(spark, tmp_path_factory.mktemp("pattern"))
    site.add(of_second(0), of_second(1, day=1))
    site.make()
    return site.warehouse


@pytest.fixture
def site(spark: SparkSession, pattern: Path, tmp_path: Path) -> Site:
    shutil.copytree(pattern, tmp_path / "warehouse", ignore=shutil.ignore_patterns("checkpoints"))
    return Site(spark, tmp_path)


def test_reader_that_has_begun_reads_its_version_to_the_end(site: Site) -> None:
    reader = opened(str(site.warehouse), ALL, TABLES)
    later = connected()
    begun = gold(str(site.warehouse))
    site.add(of_second(2), of_second(12, day=1))
    assert site.make() == 2
    assert sums(reader) == [3] * 3
    begun.show(later, ALL, TABLES)
    assert sums(later) == [3] * 3
    assert found(site.warehouse) == [3 + 4 + 2**12] * 3


def test_replaced_versions_go_with_the_next_making(site: Site) -> None:
    made = [versions(site.warehouse)]
    for seq in (2, 3):
        site.add(of_second(seq))
        site.make()
        made.append(versions(site.warehouse))
    first, second, third = made
    assert first < second
    assert {each for each in first if each not in third} == {each for each in first if "date=2026-03-01" in each}
    assert len(second) == len(third)
    assert found(site.warehouse) == [15] * 3


@pytest.mark.parametrize("content", ["", '{"hours": {"12"', '{"hours": {"12": ["b-0"]}, "day": ["12"]}'])
def test_list_that_cannot_be_read_lists_nothing(site: Site, content: str) -> None:
    """Cut off by a full disk, or of an earlier form."""
    before = found(site.warehouse)
    for date in ("2026-03-01", "2026-03-02"):
        (site.warehouse / "gold" / "made" / f"date={date}.json").write_text(content, encoding="utf-8")
    told = CliRunner().invoke(analyze, ["report", "--warehouse", str(site.warehouse)])
    assert (told.exit_code, told.exception.__class__) == (2, SystemExit)
    assert "run `sluice analyze gold`" in told.output
    first = versions(site.warehouse)
    assert site.make() == 2
    assert found(site.warehouse) == before
    assert not first & versions(site.warehouse), "nobody knows what they are of"


@pytest.mark.parametrize("killed_at", ["_write", "_day", "publish"])
def test_killed_making_leaves_the_version_before(site: Site, killed_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add(of_second(2), of_second(3, day=1))
    owner: Any = Writer if killed_at == "publish" else build._Builder
    real = getattr(owner, killed_at)
    calls: list[Any] = []

    def killed(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        if len(calls) == (4 if killed_at == "_write" else 1):
            raise KeyboardInterrupt
        return real(*arguments, **more)

    before = versions(site.warehouse)
    with monkeypatch.context() as patched:
        patched.setattr(owner, killed_at, killed)
        with pytest.raises(KeyboardInterrupt):
            site.make()
    assert found(site.warehouse) == [3] * 3, "both dates are visible together"
    left = versions(site.warehouse) - before
    assert site.make() == 2
    assert found(site.warehouse) == [3 + 4 + 8] * 3
    named = {version.made for version in gold(str(site.warehouse)).hours.values()}
    assert not {each for each in left & versions(site.warehouse) if each.rpartition("made=")[2] not in named}


def test_killed_first_making_leaves_the_dates_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(spark, tmp_path)
    site.add(*(of_second(day, day=day) for day in range(3)))
    real, calls = build._Builder._write, list[Any]()

    def killed(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > 2 * len(EVERY):
            raise KeyboardInterrupt
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(build._Builder, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            site.make()
    assert found(site.warehouse) == [1] * 3
    assert site.make() == 2
    assert found(site.warehouse) == [7] * 3


def test_gold_is_made_by_a_command(site: Site) -> None:
    site.add(of_second(2))
    for hours in ("1 hour", "0 hours"):
        done = CliRunner().invoke(analyze, ["gold", "--warehouse", str(site.warehouse)])
        assert done.exit_code == 0, done.output
        assert done.stdout == f"{site.warehouse}: gold of {hours} made\n"
