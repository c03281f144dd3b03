from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.table import parquet, scan
from analysis.table.parquet import encode
from analysis.table.scan import FILES, UsageRows
from analysis.table.schema import FILE
from tests.analysis.records import BEGIN, document, in_order, row, rows_of, stored, usage

DOCUMENTS = [document(seq, [row("alice", bytes_in=seq), row("bob", bytes_in=1)]) for seq in range(10)]
BEGIN_US = int(BEGIN.timestamp()) * 1_000_000

pytestmark = pytest.mark.spark


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> pa.RecordBatch:
    """One file, in ten row groups."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 2)
    return pa.RecordBatch.from_pydict(
        {"path": ["memory"], "content": [encode(pa.Table.from_pylist(stored(DOCUMENTS), FILE))]}
    )


def test_all_that_is_in_files(spark: SparkSession) -> None:
    assert rows_of(usage(spark, DOCUMENTS[:4], [], DOCUMENTS[4:])) == in_order(stored(DOCUMENTS))


@pytest.mark.parametrize(("begin", "end"), [(None, None), (3, None), (None, 7), (3, 7), (3, 3), (20, None)])
def test_a_period_within_a_file(spark: SparkSession, begin: int | None, end: int | None) -> None:
    files = usage(spark, DOCUMENTS).files
    begin_us, end_us = (None if second is None else BEGIN_US + second * 1_000_000 for second in (begin, end))
    expected = DOCUMENTS[slice(begin or 0, end)]
    assert rows_of(UsageRows(files, begin_us, end_us)) == in_order(stored(expected))


def test_what_a_worker_makes_of_it(spark: SparkSession) -> None:
    def sums(found: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in found:
            assert table.schema.names == ["user", "bytes_in"]
            assert all(column.num_chunks == 1 for column in table.columns)
            yield table.group_by("user").aggregate([("bytes_in", "sum")])

    schema = pa.schema([("bytes_in_sum", pa.int64()), ("user", pa.string())])
    rows = usage(spark, DOCUMENTS[:5], DOCUMENTS[5:]).scan(["user", "bytes_in"], sums, schema).toArrow()
    assert rows.schema.names == schema.names
    mine = rows.filter(pc.field("user") == "alice")
    assert (pc.sum(rows["bytes_in_sum"]).as_py(), pc.sum(mine["bytes_in_sum"]).as_py()) == (55, 45)


def test_row_groups_are_joined_until_a_table_is_large(tables: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_TABLE_ROWS", 6)
    end = BEGIN + timedelta(seconds=9)
    opened = scan._Opened(("user", "time"), BEGIN_US + 1_000_000, int(end.timestamp()) * 1_000_000)
    assert [table.num_rows for table in opened.tables(iter([tables]))] == [6, 6, 4]


def test_a_file_that_is_damaged_is_named(spark: SparkSession) -> None:
    files = spark.createDataFrame([("hdfs://nn/usage/part-1.parquet", b"PAR1 and nonsense")], FILES)
    with pytest.raises(PySparkException, match=r"RunError: hdfs://nn/usage/part-1\.parquet: "):
        rows_of(UsageRows(files))
