from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis import warehouse as tables
from analysis.errors import AnalysisError
from analysis.schema import ROWS
from tests.analysis.records import BEGIN, document, row, usage_frame

pytestmark = pytest.mark.spark

HOURS = 3


def store(frame: DataFrame, warehouse: str) -> None:
    tables.create(frame.sparkSession, warehouse)
    partitions = frame.withColumn("hour", F.format_string("%02d", "hour")).withColumn("batch", F.lit("b-0"))
    partitions.write.partitionBy(*tables.PARTITIONS).parquet(tables.path_of(warehouse, tables.USAGE))


@pytest.fixture
def stored(spark: SparkSession, warehouse: str) -> str:
    """Two rows in each of three hours."""
    documents = [document(seq, [row("alice"), row("bob")], second=3600 * seq) for seq in range(HOURS)]
    store(usage_frame(spark, documents), warehouse)
    return warehouse


def test_the_table_gives_back_what_was_stored(spark: SparkSession, stored: str) -> None:
    rows = tables.usage(spark, stored)
    assert rows.schema == ROWS
    assert rows.count() == 2 * HOURS
    assert tables.bounds(spark, stored) == (BEGIN, BEGIN + timedelta(hours=HOURS))


def test_the_end_is_not_in_the_period(spark: SparkSession, stored: str) -> None:
    rows = tables.usage(spark, stored, BEGIN + timedelta(hours=1), BEGIN + timedelta(hours=2))
    assert [found.seq for found in rows.select("seq").distinct().collect()] == [1]


def test_other_hours_are_not_opened(spark: SparkSession, stored: str) -> None:
    rows = tables.usage(spark, stored, BEGIN, BEGIN + timedelta(minutes=30))
    assert len(rows.inputFiles()) > 1  # of the day
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull" in plan or "PartitionFilters: [(format_string" in plan, plan


def test_an_empty_period_says_which_there_is(spark: SparkSession, stored: str) -> None:
    late = BEGIN + timedelta(days=2)
    with pytest.raises(AnalysisError, match=r"from 2026-03-03 12:00 UTC: .* from 2026-03-01 12:00 to 2026-03-01 15:00"):
        tables.usage(spark, stored, late)


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
