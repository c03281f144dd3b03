from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analysis.table import parquet
from analysis.table.parquet import decode, encode, grouped, joined
from analysis.table.schema import COLUMNS, FILE, TEXT
from tests.analysis.records import BEGIN_MS, document, in_order, row, stored, usage_frame

DOCUMENTS = [
    document(seq, [row("alice", bytes_in=seq, produce_limit=10.5, produce_rule="user=alice"), row(None, None)])
    for seq in range(5)
]
ROWS = in_order(stored(DOCUMENTS))
MISSING = {column.name: column.missing for column in COLUMNS}


def file(**options: Any) -> pa.Buffer:
    """The rows in a file as others might write it."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS, FILE), out, **options)
    return out.getvalue()


def rows_of(content: pa.Buffer) -> list[dict[str, Any]]:
    return in_order(row for table in decode(content, FILE.names) for row in table.cast(FILE).to_pylist())


def test_what_is_written_is_read() -> None:
    content = encode(pa.Table.from_pylist(ROWS, FILE))
    assert rows_of(pa.py_buffer(content)) == ROWS
    written = pq.ParquetFile(pa.BufferReader(content))
    assert written.schema_arrow.field("time").type == pa.timestamp("us", tz="UTC")
    assert written.metadata.row_group(0).column(0).compression == "ZSTD"


def test_no_rows_are_a_file_without_rows() -> None:
    assert rows_of(pa.py_buffer(encode(FILE.empty_table()))) == []


def test_some_columns_a_row_group_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    content = encode(pa.Table.from_pylist(ROWS, FILE))
    groups = list(decode(pa.py_buffer(content), ["user", "bytes_in"]))
    assert [group.num_rows for group in groups] == [4, 4, 2]
    assert groups[0].schema.names == ["user", "bytes_in"]
    assert groups[0].schema.field("user").type == pa.dictionary(pa.int32(), TEXT)


def test_row_groups_of_other_times_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    content = pa.py_buffer(encode(pa.Table.from_pylist(ROWS, FILE)))
    begin_us = BEGIN_MS * 1000

    def rows(since_us: int | None, until_us: int | None) -> list[int]:
        return [len(group) for group in decode(content, ["user"], times_us=(since_us, until_us))]

    assert rows(None, None) == rows(begin_us, None) == rows(begin_us + 1_000_000, begin_us + 10**10) == [4, 4, 2]
    assert rows(begin_us + 1_000_001, None) == [4, 2], "the first has the seconds 0 and 1"
    assert rows(None, begin_us + 2_000_000) == [4]
    assert rows(begin_us + 5_000_000, None) == rows(None, begin_us) == []


def test_times_of_others_are_not_mistaken() -> None:
    out = pa.BufferOutputStream()
    rows = pa.Table.from_pylist(ROWS, FILE)
    pq.write_table(rows.set_column(0, "time", rows["time"].cast(pa.timestamp("ns", tz="UTC"))), out)
    for content in (out.getvalue(), file(use_deprecated_int96_timestamps=True), file(coerce_timestamps="ms")):
        first_two = decode(content, ["user"], times_us=(BEGIN_MS * 1000, (BEGIN_MS + 2000) * 1000))
        assert sum(map(len, first_two)) == len(ROWS), "it is for others to leave out rows"


def test_a_column_that_came_later_is_what_a_missing_one_is() -> None:
    out = pa.BufferOutputStream()
    later = ["listener", "user", "broker", "fetch_bytes", "fetch_limit"]
    pq.write_table(pa.Table.from_pylist(ROWS, FILE).drop_columns(later), out)
    expected = [{**each, **{name: MISSING[name] for name in later}} for each in ROWS]
    assert in_order(rows_of(out.getvalue())) == in_order(expected)


@pytest.mark.parametrize(
    "options",
    [
        {"use_deprecated_int96_timestamps": True},
        {"coerce_timestamps": "ms"},
        {"version": "2.6", "store_schema": False},
        {"use_dictionary": False, "compression": "none"},
    ],
)
def test_files_of_others(options: dict[str, Any]) -> None:
    assert rows_of(file(**options)) == ROWS


def test_times_in_nanoseconds() -> None:
    out = pa.BufferOutputStream()
    rows = pa.Table.from_pylist(ROWS, FILE)
    pq.write_table(rows.set_column(0, "time", rows["time"].cast(pa.timestamp("ns", tz="UTC"))), out)
    assert rows_of(out.getvalue()) == ROWS


@pytest.mark.spark
@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS"])
def test_files_of_spark(spark: SparkSession, tmp_path: Path, times: str) -> None:
    frame = usage_frame(spark, DOCUMENTS).drop("date", "hour").coalesce(1)
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    try:
        frame.write.parquet(str(tmp_path / "there"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (written,) = (tmp_path / "there").glob("*.parquet")
    assert rows_of(pa.py_buffer(written.read_bytes())) == ROWS


def test_groups_by_texts_are_those_of_arrow() -> None:
    table = joined([*decode(file(), ["user", "seq", "bytes_in"]), *decode(file(), ["user", "seq", "bytes_in"])])
    found = grouped(table, ["user", "seq"], [("bytes_in", "sum")]).to_pylist()
    key = lambda each: (each["seq"], each["user"] or "")  # noqa: E731
    assert sorted(found, key=key) == sorted(
        ({"user": each["user"], "seq": each["seq"], "bytes_in_sum": 2 * each["bytes_in"]} for each in ROWS), key=key
    )


def test_rows_of_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups without it are left out by their statistics; what else is in a group is not read without it."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    content = pa.py_buffer(encode(pa.Table.from_pylist([*stored(DOCUMENTS), *stored([LAST])], FILE)))
    groups = list(decode(content, FILE.names, {"user": ["alice"]}))
    assert [group.num_rows for group in groups] == [2, 2, 1]
    found = in_order(row for table in groups for row in table.cast(FILE).to_pylist())
    assert found == [row for row in ROWS if row["user"] == "alice"]
    assert [table.num_rows for table in decode(content, ["seq"], {"user": ["zoe"], "broker": [1, 2]})] == [1]
    assert list(decode(content, ["seq"], {"user": ["bob"]})) == [], "between alice and zoe"
    assert list(decode(content, ["seq"], {"ip": ["10.0.0.1"]})) == [], "no row has an address"


LAST = document(5, [row("zoe")])
