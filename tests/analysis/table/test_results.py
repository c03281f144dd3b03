"""Tables of a report: what is gone on with is what was written, wherever it then is."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analysis.table import parts
from analysis.table.parts import Parts
from analysis.table.results import Results
from analysis.table.schema import TIME

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SCHEMA = pa.schema([("user", pa.string()), ("bytes", pa.int64()), ("p99", pa.float64()), ("hour", TIME)])
ROWS = pa.Table.from_pylist(
    [
        {"user": "alice", "bytes": 1, "p99": 0.5, "hour": datetime(2026, 3, 1, 12, tzinfo=UTC)},
        dict.fromkeys(SCHEMA.names),
        {"user": "bob"},
    ],
    SCHEMA,
)


@pytest.mark.parametrize("file_rows", [1, 2, 100])
def test_what_is_kept_is_what_was_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_rows: int
) -> None:
    monkeypatch.setattr(parts, "FILE_ROWS", file_rows)
    made = Parts.gathered([ROWS], SCHEMA)
    kept = Results(spark, str(tmp_path)).keep("rows", made)
    assert kept.whole().equals(ROWS)
    assert len(list(tmp_path.glob("rows/*.parquet"))) == -(-len(ROWS) // file_rows)
    assert pq.read_table(tmp_path / "rows").schema.equals(SCHEMA)
    found = spark.read.parquet(f"{tmp_path}/rows")
    assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, ROWS.to_pylist()))


def test_nothing_and_once_more(spark: SparkSession, tmp_path: Path) -> None:
    results = Results(spark, str(tmp_path))
    results.keep("rows", Parts.of(ROWS))
    results.keep("rows", Parts.gathered([], SCHEMA))
    assert pq.read_table(tmp_path / "rows").equals(SCHEMA.empty_table())
