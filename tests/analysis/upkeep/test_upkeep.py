"""Days that are over are compacted, and old ones expire: rows, documents and gold stay what they were."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from analysis.gold.build import make
from analysis.spark.folder import Folder
from analysis.upkeep.compaction import Compacted, compact
from analysis.upkeep.expiry import Expired, expire
from tests.analysis.ingesting import ingest
from tests.analysis.records import BEGIN_MS, document, row
from tests.harness.rows import usage

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAY_S = 86_400
NOW_S = BEGIN_MS / 1000 + 3 * DAY_S


def fill(spark: SparkSession, folder: Path) -> None:
    """Make a warehouse of two days: of the first two hours in two batches each, of the second one hour."""
    for number, seconds in enumerate([(0, 1, 3600), (2, 3601, 3602), (DAY_S, DAY_S + 1)]):
        documents = [_document(number * 10 + each, second) for each, second in enumerate(seconds)]
        ingest(spark, folder, documents, name=f"file-{number}")
    make(spark, str(folder / "warehouse"))


class Filled:
    """A warehouse as `fill` makes it. The files that it was read from are not there any more."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.root = str(folder / "warehouse")

    def compact(self) -> Compacted:
        return compact(self.spark, self.root, 7200, lambda _: None, lambda: NOW_S)

    def expire(self, keep_s: int, *, dry_run: bool = False) -> Expired:
        return expire(self.spark, self.root, keep_s, lambda _: None, lambda: NOW_S, dry_run=dry_run)

    def rows(self) -> list[Any]:
        return self.ask('SELECT instance, "user", bytes_in, time, date, hour', usage(self.root))

    def documents(self) -> list[Any]:
        return self.ask("SELECT instance, seq, begin_ms, is_first, late, date, hour", self.files("documents"))

    def files(self, table: str) -> str:
        return f"read_parquet('{self.root}/{table}/*/*/*/*.parquet', hive_partitioning=true)"

    def ask(self, select: str, rows: str) -> list[Any]:
        return duckdb.connect().execute(f"{select} FROM {rows} ORDER BY ALL").fetchall()

    def batches(self, table: str = "usage") -> dict[str, int]:
        found: dict[str, int] = {}
        for batch in sorted((Path(self.root) / table).glob("date=*/hour=*/batch=*")):
            place = f"{batch.parent.parent.name} {batch.parent.name}"
            found[place] = found.get(place, 0) + 1
        return found


def _document(seq: int, second: float) -> dict[str, Any]:
    return document(
        seq,
        [row("alice", bytes_in=seq, produce_bytes=seq, produce_rule="user=alice", produce_limit=9.0)],
        second=second,
    )


@pytest.fixture(scope="module")
def pattern(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pattern")
    fill(spark, folder)
    return folder / "warehouse"


@pytest.fixture
def filled(spark: SparkSession, pattern: Path, tmp_path: Path) -> Filled:
    shutil.copytree(pattern, tmp_path / "warehouse")
    return Filled(spark, tmp_path)


def test_compact_leaves_one_batch_per_hour_of_finished_day(filled: Filled) -> None:
    rows, documents = filled.rows(), filled.documents()
    found = filled.compact()
    assert filled.batches() == {
        "date=2026-03-01 hour=12": 1,
        "date=2026-03-01 hour=13": 1,
        "date=2026-03-02 hour=12": 1,
    }
    assert filled.batches("documents") == filled.batches("keys") == filled.batches()
    assert (filled.rows(), filled.documents()) == (rows, documents)
    assert (found.days, found.batches, found.batches_made) == (1, 12, 6)
    assert filled.compact().days == 0


def test_compacted_batches_are_not_made_into_gold_again(filled: Filled) -> None:
    filled.compact()
    assert make(filled.spark, filled.root) == 0


def test_documents_that_were_compacted_are_known(filled: Filled) -> None:
    filled.compact()
    tally = ingest(filled.spark, filled.folder, [_document(0, 0), _document(99, 3)], name="again")
    assert (tally.documents, tally.duplicates, tally.late) == (1, 1, 1)


@pytest.mark.parametrize("at", ["move", "write", "remove"])
def test_killed_compaction_is_finished_by_the_next_writer(
    filled: Filled, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, documents = filled.rows(), filled.documents()
    real = getattr(Folder, at)

    def until(folder: Folder, name: str, *more: str) -> None:
        if "hour=13" in name or name.startswith("gold/made/"):
            raise KeyboardInterrupt
        real(folder, name, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, at, until)
        with pytest.raises(KeyboardInterrupt):
            filled.compact()
    tally = ingest(filled.spark, filled.folder, [_document(0, 0), _document(0, 3600)], name="again")
    assert (tally.documents, tally.duplicates) == (0, 2)
    assert (filled.rows(), filled.documents()) == (rows, documents)
    assert make(filled.spark, filled.root) == 0


def test_expire_removes_old_rows_with_their_gold(filled: Filled) -> None:
    would = filled.expire(DAY_S, dry_run=True)
    assert len(filled.rows()) == 8
    found = filled.expire(DAY_S)
    assert (found.hours, would.hours) == (1, 1)
    assert {(each[-2].isoformat(), each[-1]) for each in filled.rows()} == {("2026-03-01", 13), ("2026-03-02", 12)}
    assert len(filled.documents()) == 5
    gold = Path(filled.root, "gold")
    assert sorted({each.parent.parent.name for each in gold.glob("client_hour/date=*/hour=*/*/*.parquet")}) == [
        "hour=12",
        "hour=13",
    ]
    assert not [*gold.glob("*_day/date=2026-03-01")]
    make(filled.spark, filled.root)
    assert [each.parent.parent.name for each in gold.glob("client_day/date=*/*/*.parquet")] == ["date=2026-03-01"]


def test_expire_always_keeps_the_newest_hour(filled: Filled) -> None:
    filled.expire(0)
    assert filled.batches() == {"date=2026-03-02 hour=12": 1}
