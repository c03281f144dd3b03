"""Tables of a report: what is gone on with is what was written, wherever it then is."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from analysis.table import results
from analysis.table.results import Results

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

ROWS = [("alice", 1, 0.5, datetime(2026, 3, 1, 12, tzinfo=UTC)), (None, None, None, None)]


@pytest.fixture
def table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "user string, bytes long, p99 double, hour timestamp")


@pytest.mark.parametrize("are_few", [True, False], ids=["few", "many"])
@pytest.mark.parametrize("are_small", [True, False], ids=["of rows at hand", "of rows in files"])
def test_what_is_kept_is_what_was_made(
    table: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_small: bool, are_few: bool
) -> None:
    if not are_few:
        monkeypatch.setattr(results, "FEW_VALUES", 7)
    kept = Results(table.sparkSession, str(tmp_path), are_small).keep("rows", table)
    assert kept.schema == table.schema
    assert sorted(map(str, kept.collect())) == sorted(map(str, table.collect()))
    assert table.sparkSession.read.parquet(f"{tmp_path}/rows").count() == len(ROWS)
    shutil.rmtree(tmp_path / "rows")
    if are_small or are_few:
        assert kept.count() == len(ROWS)
    else:
        with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"):
            kept.collect()


def test_nothing_and_once_more(table: DataFrame, tmp_path: Path) -> None:
    kept = Results(table.sparkSession, str(tmp_path))
    assert kept.keep("rows", table).count() == len(ROWS)
    nothing = kept.keep("rows", table.where("bytes < 0"))
    assert (nothing.schema, nothing.count()) == (table.schema, 0)
