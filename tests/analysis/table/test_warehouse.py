from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import AnalysisError
from analysis.ingest.known import Hour
from analysis.ingest.publishing import Publication
from analysis.spark.folder import Folder
from analysis.table import at_hand
from analysis.table import warehouse as tables
from analysis.table.parquet import encode
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE
from tests.analysis.records import BEGIN, document, in_order, row, rows_of, stored, usage_frame

pytestmark = pytest.mark.spark

HOURS = 3


DOCUMENTS = [document(seq, [row("alice"), row("bob")], second=3600 * seq) for seq in range(HOURS)]


def store(frame: DataFrame, warehouse: str) -> None:
    tables.create(frame.sparkSession, warehouse)
    partitions = frame.withColumn("hour", F.format_string("%02d", "hour")).withColumn("batch", F.lit("b-0"))
    partitions.write.partitionBy(*tables.PARTITIONS).parquet(tables.path_of(warehouse, tables.USAGE))


@pytest.fixture
def filled(spark: SparkSession, warehouse: str) -> str:
    """Two rows in each of three hours."""
    store(usage_frame(spark, DOCUMENTS), warehouse)
    return warehouse


def opened(usage: UsageRows) -> list[str]:
    """The hours whose files are opened."""
    return sorted({part for path in usage.paths() for part in path.split("/") if part.startswith("hour=")})


def test_the_table_gives_back_what_was_stored(spark: SparkSession, filled: str) -> None:
    usage = tables.usage(spark, filled)
    assert rows_of(usage) == in_order(stored(DOCUMENTS))
    assert tables.bounds(spark, filled) == (BEGIN, BEGIN + timedelta(hours=HOURS))


@pytest.mark.parametrize(("now", "hours"), [(0.5, 1), (1, 1), (1.5, 2), (100, HOURS), (-100, HOURS)])
def test_hours_that_have_not_begun_do_not_decide_the_period(
    spark: SparkSession, filled: str, now: float, hours: int
) -> None:
    """Unless there are no others."""
    assert tables.newest_end(spark, filled, BEGIN + timedelta(hours=now)) == BEGIN + timedelta(hours=hours)


@pytest.mark.parametrize("few", [0, 10])
def test_workers_open_themselves_what_is_on_a_disk(
    spark: SparkSession, tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_hand, "FEW_FILES", few)
    warehouse = str(tmp_path / "usage of ü#1%20?")
    store(usage_frame(spark, DOCUMENTS), warehouse)
    usage = tables.usage(spark, warehouse)
    assert (usage.at_hand is None) == (few == 0)
    assert usage.files is None or usage.files.columns == ["path"]
    assert rows_of(usage) == in_order(stored(DOCUMENTS))
    sent = spark.read.format("binaryFile").load(f"{tmp_path}/*/usage/*/*/*").select("path", "content")
    assert rows_of(UsageRows(sent)) == in_order(stored(DOCUMENTS))


def test_the_end_is_not_in_the_period(spark: SparkSession, filled: str) -> None:
    usage = tables.usage(spark, filled, BEGIN + timedelta(hours=1), BEGIN + timedelta(hours=2))
    assert {each["seq"] for each in rows_of(usage)} == {1}


@pytest.mark.parametrize("few", [0, 10])
def test_other_hours_are_not_opened(
    spark: SparkSession, filled: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_hand, "FEW_FILES", few)
    assert opened(tables.usage(spark, filled, BEGIN, BEGIN + timedelta(minutes=30))) == ["hour=12"]
    assert opened(tables.usage(spark, filled, BEGIN + timedelta(minutes=90))) == ["hour=13", "hour=14"]


def test_what_is_still_aside_is_not_read(spark: SparkSession, filled: str) -> None:
    late = document(9, [row("carol")], second=1)
    aside = Publication(Folder(spark, tables.path_of(filled, tables.USAGE)), "b-9")
    aside.add(Hour.of(late["time_ms"]), encode(pa.Table.from_pylist(stored([late]), FILE)))
    assert rows_of(tables.usage(spark, filled)) == in_order(stored(DOCUMENTS))
    aside.publish()
    assert rows_of(tables.usage(spark, filled)) == in_order(stored([*DOCUMENTS, late]))


def test_the_keys_of_an_hour(spark: SparkSession, filled: str) -> None:
    found = tables.stored_keys(spark, filled, "2026-03-01", 13, "b-1")
    assert [tuple(each) for each in found] == [("edge-1", "boot-1", 1)]
    assert tables.stored_keys(spark, filled, "2026-03-01", 13, "b-0") == []
    assert tables.stored_keys(spark, filled, "2026-03-01", 3, "b-1") == []


def test_the_newest_hour_of_other_batches(spark: SparkSession, filled: str) -> None:
    assert tables.newest_hour(spark, filled, "b-1") == BEGIN + timedelta(hours=2)
    assert tables.newest_hour(spark, filled, "b-0") is None


def test_an_empty_period_says_which_there_is(spark: SparkSession, filled: str) -> None:
    late = BEGIN + timedelta(days=2)
    with pytest.raises(AnalysisError, match=r"from 2026-03-03 12:00 UTC: .* from 2026-03-01 12:00 to 2026-03-01 15:00"):
        tables.usage(spark, filled, late)


def test_a_period_within_an_hour_without_rows_says_so_when_it_is_read(spark: SparkSession, filled: str) -> None:
    usage = tables.usage(spark, filled, BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=20))
    assert rows_of(usage) == []
    assert "from 2026-03-01 12:10 to 2026-03-01 12:20 UTC: " in usage.nothing
    assert usage.nothing.endswith("has them from 2026-03-01 12:00 to 2026-03-01 15:00 UTC")


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (None, "no such directory"),
        ("", "is no warehouse"),
        ("{}", "is damaged"),
        ("[]", "is damaged"),
        ('{"version": 2}', "version 2, and this Sluice knows 1"),
        ('{"version": 1}', "has no usage records yet"),
    ],
)
def test_a_wrong_directory(spark: SparkSession, tmp_path: Path, mark: str | None, said: str) -> None:
    place = tmp_path / "elsewhere"
    if mark is not None:
        place.mkdir()
    if mark:
        (place / "sluice-warehouse.json").write_text(mark, encoding="utf-8")
    with pytest.raises(AnalysisError, match=said):
        tables.usage(spark, str(place))


def test_a_warehouse_of_another_version_is_not_written_to(spark: SparkSession, warehouse: str) -> None:
    Path(warehouse).mkdir()
    (Path(warehouse) / "sluice-warehouse.json").write_text('{"version": 9}', encoding="utf-8")
    with pytest.raises(AnalysisError, match="version 9"):
        tables.create(spark, warehouse)
