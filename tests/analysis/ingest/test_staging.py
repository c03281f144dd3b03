"""What Python workers do, without Spark: its batches are Arrow's."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from analysis.ingest import staging
from analysis.ingest.staging import STAGED
from analysis.table.parquet import decode
from analysis.table.schema import FILE
from tests.analysis.records import Document, document, in_order, row, stored

ROWS = [row("alice", bytes_in=7, produce_limit=10.5), row("bob", bytes_in=5)]
HOUR_S = 3600


def batches(texts: Sequence[str], size: int = 3) -> Iterator[pa.RecordBatch]:
    """Documents of a topic, as Spark hands them over."""
    rows = [
        {"id": number, "value": text.encode(), "size": len(text), "topic": "t", "partition": 1, "offset": 10 + number}
        for number, text in enumerate(texts)
    ]
    for begin in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[begin : begin + size], staging.INPUT)


def staged(found: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(list(found), STAGED).to_pylist()
    return rows


def files_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if each["content"] is not None]


def rows_in(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for each in files:
        for table in decode(pa.py_buffer(each["content"]), FILE.names):
            of_file = table.cast(FILE).to_pylist()
            assert {(f"{row['time']:%Y-%m-%d}", row["time"].hour) for row in of_file} == {(each["date"], each["hour"])}
            rows += of_file
    return in_order(rows)


@pytest.fixture
def documents() -> list[Document]:
    """Of three hours, in turn."""
    return [document(seq, ROWS, second=HOUR_S * (seq % 3) + seq) for seq in range(10)]


def test_documents_become_a_file_an_hour(documents: list[Document]) -> None:
    found = staged(staging.staging()(batches([json.dumps(each) for each in documents])))
    told = [each for each in found if each["rows"] is not None]
    assert [(each["id"], each["seq"], each["time_ms"], each["rows"]) for each in told] == [
        (seq, seq, documents[seq]["time_ms"], 2) for seq in range(10)
    ]
    files = files_of(found)
    assert sorted((each["date"], each["hour"]) for each in files) == [("2026-03-01", hour) for hour in (12, 13, 14)]
    assert rows_in(files) == in_order(stored(documents))


def test_a_file_has_so_many_rows_and_no_more(documents: list[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FILE_ROWS", 6)
    found = staged(staging.staging()(batches([json.dumps(each) for each in documents])))
    assert len(files_of(found)) == 3 * 3 + 1
    assert rows_in(files_of(found)) == in_order(stored(documents))
    merged = staged(staging.merge(iter([pa.RecordBatch.from_pylist(files_of(found), STAGED)])))
    assert rows_in(merged) == in_order(stored(documents))


def test_many_files_become_one_an_hour(documents: list[Document]) -> None:
    of_tasks = [staged(staging.staging()(batches([json.dumps(each)]))) for each in documents]
    files = pa.RecordBatch.from_pylist([file for found in of_tasks for file in files_of(found)], STAGED)
    merged = staged(staging.merge(iter([files.slice(0, 4), files.slice(4)])))
    assert len(merged) == 3
    assert rows_in(merged) == in_order(stored(documents))


def test_what_cannot_be_read_keeps_its_place_and_its_text(documents: list[Document]) -> None:
    texts = [json.dumps(documents[0]), "nonsense", "{}"]
    found = staged(staging.staging()(batches(texts)))
    told = [(each["id"], each["fault"], each["value"], each["offset"]) for each in found if each["fault"]]
    assert told == [(1, "is not JSON", b"nonsense", 11), (2, "has no v", b"{}", 12)]
    assert rows_in(files_of(found)) == in_order(stored(documents[:1]))


def test_documents_that_are_dropped_leave_nothing(documents: list[Document]) -> None:
    texts = [*(json.dumps(each) for each in documents), "nonsense"]
    found = staged(staging.staging(frozenset({0, 3, 10}))(batches(texts)))
    assert {each["id"] for each in found} == {None, 1, 2, 4, 5, 6, 7, 8, 9}
    kept = [each for each in documents if each["seq"] not in {0, 3}]
    assert rows_in(files_of(found)) == in_order(stored(kept))


def test_documents_without_rows_make_no_file() -> None:
    (found,) = staged(staging.staging()(batches([json.dumps(document(0, []))])))
    assert (found["seq"], found["rows"], found["content"]) == (0, 0, None)


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("later_ms", "wrong"), [(0, False), (29 * DAY_MS, False), (31 * DAY_MS, True), (-2 * DAY_MS, True)]
)
def test_what_a_broker_stamped_at_quite_another_time_is_of_a_wrong_clock(later_ms: int, *, wrong: bool) -> None:
    """A document that waited for weeks in a proxy, or that came before it was: neither can be."""
    written = document(0, ROWS)
    row_ = {"id": 0, "value": json.dumps(written).encode(), "size": 1, "stamped_ms": written["time_ms"] + later_ms}
    [*found] = staged(staging.staging()(iter([pa.RecordBatch.from_pylist([row_], staging.INPUT)])))
    faults = [each["fault"] for each in found if each["fault"]]
    assert bool(faults) is wrong
    assert all(
        fault.startswith(f"wrong clock: time_ms is {written['time_ms']} (2026-03-01 12:00:00") for fault in faults
    )


def test_what_the_source_could_not_have_is_rejected_with_its_reason() -> None:
    row_ = {"id": 0, "value": b"x" * 100_000, "size": 10**9, "fault": "is damaged", "topic": "t", "offset": 7}
    (found,) = staged(staging.staging()(iter([pa.RecordBatch.from_pylist([row_], staging.INPUT)])))
    assert (found["fault"], found["offset"], found["size"], len(found["value"])) == ("is damaged", 7, 10**9, 65536)
