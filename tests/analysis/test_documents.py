import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from analysis.documents import faults, headers, read, rows_of
from analysis.schema import ROWS
from tests.analysis.records import BEGIN_MS, Document, document, row, usage_frame

pytestmark = pytest.mark.spark

TWO_ROWS = [row("alice", bytes_in=7, produce_limit=1024.5, produce_rule="user=alice"), row(None, None, broker=-1)]


def without(column: str, **changes: Any) -> Document:
    whole = document(0, TWO_ROWS)
    return {**whole, "rows": {**{name: each for name, each in whole["rows"].items() if name != column}, **changes}}


def test_rows_of_what_the_proxy_writes(spark: SparkSession) -> None:
    documents = [document(seq, TWO_ROWS) for seq in range(3)]
    frame = read(spark.createDataFrame([(json.dumps(each),) for each in documents], "value string"))
    assert frame.where("not readable").count() == 0
    assertDataFrameEqual(rows_of(frame), usage_frame(spark, documents), ignoreNullable=True)
    assert rows_of(frame).schema.names == ROWS.names


def test_what_is_not_known_is_ignored_and_what_is_missing_is_nothing(spark: SparkSession) -> None:
    later = {**without("produce_bytes", carbon=[1, 2]), "mood": {"good": True}}
    del later["samples"], later["cluster"]
    frame = read(spark.createDataFrame([(json.dumps(later),)], "value string"))
    found = rows_of(frame).collect()
    assert [each.produce_bytes for each in found] == [0, 0]
    assert [(each.user, each.bytes_in, each.samples, each.cluster) for each in found] == [
        ("alice", 7, 11, ""),
        (None, 0, 11, ""),
    ]


def test_a_null_counter_is_nothing(spark: SparkSession) -> None:
    frame = read(spark.createDataFrame([(json.dumps(without("", bytes_in=[None, 5])),)], "value string"))
    assert [each.bytes_in for each in rows_of(frame).collect()] == [0, 5]


def test_a_document_without_rows_has_none(spark: SparkSession) -> None:
    frame = read(
        spark.createDataFrame(
            [(json.dumps(document(0, [])),), (json.dumps({**document(1, []), "rows": {}}),)], "value string"
        )
    )
    assert [each.readable for each in frame.collect()] == [True, True]
    assert rows_of(frame).count() == 0


def test_headers(spark: SparkSession) -> None:
    texts = [(7, json.dumps(document(3, TWO_ROWS))), (8, "nonsense")]
    good, bad = headers(spark.createDataFrame(texts, "id long, value string")).collect()
    assert good.asDict() == {
        "id": 7,
        "bytes": len(texts[0][1]),
        "v": 1,
        "instance": "edge-1",
        "boot": "boot-1",
        "seq": 3,
        "time_ms": BEGIN_MS + 3000,
    }
    assert (bad.id, bad.instance, bad.seq) == (8, None, None)


FAULTS = {
    "": "is not JSON",
    '{"v": 1, "rows': "is not JSON",
    "[1, 2]": "is not a document: it has no v",
    "null": "is not a document: it has no v",
    "{}": "has no v",
    '{"v": 2, "rows": "elsewhere"}': "version 2 is not known",
    '{"v": 2, "rows": {}}': "version 2 is not known",
    '{"v": 1}': "has no instance, boot, seq, time_ms, interval_ms, rows",
    json.dumps({**document(0, TWO_ROWS), "boot": None}): "has no boot",
    json.dumps({**document(0, TWO_ROWS), "seq": -1}): "is below 0: seq",
    json.dumps({**document(0, TWO_ROWS), "seq": "first"}): "has values of another type in seq",
    json.dumps({**document(0, TWO_ROWS), "time_ms": BEGIN_MS * 1000}): "time_ms is not in milliseconds",
    json.dumps(without("user", user=["alice"])): "arrays differ in length: listener 2, broker 2, user 1",
    json.dumps(without("", bytes_in=[1, -2], broker=[-1, -2])): "too small in rows.broker, rows.bytes_in",
    json.dumps(without("", bytes_in=[1, "many"])): "has values of another type in rows.bytes_in",
    json.dumps(without("", produce_limit=[1, float("nan")])): "is not JSON",
}


def test_what_is_wrong_is_said(spark: SparkSession) -> None:
    found_faults = faults(spark.createDataFrame([(text,) for text in FAULTS], "value string"))
    found = found_faults.select("value", "fault").collect()
    assert len(found) == len(FAULTS)
    for each in found:
        assert FAULTS[each.value] in each.fault
