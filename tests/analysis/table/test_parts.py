"""A table is the same in memory and in files, and as a whole and a part at a time."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analysis.table import parts
from analysis.table.arrays import ranked, together
from analysis.table.exchange import collected, exchange, packed
from analysis.table.hashes import places
from analysis.table.parts import Parts, contents
from analysis.table.reading import adding
from analysis.table.scan import UsageRows
from tests.analysis.records import document, row, usage

SCHEMA = pa.schema([("name", pa.string()), ("number", pa.int64())])
ROWS = pa.table({"name": [*"abcdef", None], "number": range(7)}, schema=SCHEMA)


@pytest.fixture(params=["in memory", "in files", "in parts of files"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Parts:
    if request.param == "in memory":
        return Parts(SCHEMA, (ROWS.slice(0, 3), ROWS.slice(3)))
    monkeypatch.setattr(parts, "FILE_ROWS", 3)
    if request.param == "in parts of files":
        monkeypatch.setattr(parts, "_READ_ROWS", 2)
    return Parts.gathered([ROWS.slice(0, 4), ROWS.slice(4)], SCHEMA)


def test_all_rows_and_some_columns(table: Parts) -> None:
    assert table.whole().equals(ROWS)
    assert table.whole(["number"]).equals(ROWS.select(["number"]))
    assert len(table) == len(ROWS)
    assert pa.concat_tables(list(table.tables(["number", "name"]))).column_names == ["number", "name"]


def test_rows_within_bounds(table: Parts) -> None:
    assert table.within("number", 2, 4).whole(["name"])["name"].to_pylist() == ["c", "d", "e"]
    assert table.within("number", 5).whole()["number"].to_pylist() == [5, 6]
    assert table.within("number", None, 0).whole()["name"].to_pylist() == ["a"]
    assert len(table.within("name", "c").within("number", None, 3)) == 2, "and null is in no bounds"


def test_files_of_all_rows(table: Parts) -> None:
    found = [pq.read_table(pa.BufferReader(each)) for each in table.contents()]
    assert pa.concat_tables(found).equals(ROWS)
    [some] = table.within("number", 2, 4).contents()
    assert pq.read_table(pa.BufferReader(some))["number"].to_pylist() == [2, 3, 4]
    [nothing] = Parts(SCHEMA).contents()
    assert pq.read_table(pa.BufferReader(nothing)).equals(SCHEMA.empty_table())
    assert list(contents([SCHEMA.empty_table()])) == []


def test_a_table_of_none() -> None:
    assert Parts(SCHEMA).whole().equals(SCHEMA.empty_table())
    assert len(Parts.gathered([], SCHEMA)) == 0


def _sent(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for each in tables:
        yield from packed(each, each["bytes_in"].to_numpy() % 3)


@pytest.mark.spark
@pytest.mark.parametrize("few_tasks", [0, 8])
def test_what_tasks_made_comes_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few_tasks: int) -> None:
    monkeypatch.setattr(parts, "_FEW_TASKS", few_tasks)
    rows = usage(spark, [document(0, [row(bytes_in=number) for number in range(10)])])
    columns = ("user", "bytes_in")
    schema = pa.schema([("user", pa.string()), ("bytes_in", pa.int64())])
    found = exchange(rows, columns, _sent, 3).parts(iter, schema)
    assert sorted(found.whole()["bytes_in"].to_pylist()) == list(range(10))
    assert len(found.parts) == 3
    assert found.schema == schema


@pytest.mark.spark
def test_sums_come_here_added_up(spark: SparkSession) -> None:
    files = [[document(seq, [row("alice", bytes_in=1), row("bob", bytes_in=seq)])] for seq in range(3)]
    schema = pa.schema([("user", pa.string()), ("bytes_in", pa.int64())])
    add = adding(("user",), {"bytes_in": "sum"})

    def found(rows: UsageRows) -> list[tuple[str, int]]:
        table = collected(rows, ("user", "bytes_in"), iter, schema, add)
        assert table.schema == schema
        return sorted(zip(*table.to_pydict().values(), strict=True))

    assert found(usage(spark, *files)) == [("alice", 3), ("bob", 3)]
    assert found(usage(spark)) == []


def test_names_are_found_whatever_they_are() -> None:
    known = pa.table({"a": ["x", None, "y"], "b": [1, 1, None]})
    asked = pa.table({"a": ["y", "x", None, "z"], "b": pa.array([None, 1, 1, 1])})
    assert places(asked, known, ("a", "b")).tolist() == [2, 0, 1, -1]
    assert places(asked, known.slice(0, 0), ("a", "b")).tolist() == [-1] * 4


def test_the_first_ones_have_most() -> None:
    table = together([pa.table({"number": [1, 2, 2, None], "name": ["a", "c", "b", "d"]})], SCHEMA)
    assert ranked(table, ["number"], ["name"])["name"].to_pylist() == ["b", "c", "a", "d"]
    assert ranked(table, ["number"], ["name"], 1)["name"].to_pylist() == ["b"]
