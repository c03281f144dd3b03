"""Decodes texts in Python workers into whole Parquet files, with a line about each document.

Spark's ``from_json`` and ``inline``, and its writer, take four times the CPU.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.ingest.columns import UnreadableError
from analysis.ingest.documents import UsageDocument, check_clock, check_size, count_of, read, table
from analysis.ingest.duplicates import HOUR_MS
from analysis.ingest.source import KEPT_BYTES, Origin, Text
from analysis.schema import COUNT, OPTIONAL, SMALL, TEXT
from quotas.names import OTHER

Batches = Iterator[pa.RecordBatch]
_PLACE: Final = (("topic", TEXT), ("partition", SMALL), ("offset", COUNT), ("file", TEXT), ("line", COUNT))
_SAID: Final = ("cluster", "instance", "boot", "seq", "time_ms", "interval_ms", "dropped_documents")
_LINE: Final = pa.struct(
    [
        *_PLACE,
        *((name, TEXT) for name in ("cluster", "instance", "boot")),
        *((name, COUNT) for name in ("seq", "time_ms", "interval_ms", "dropped_documents")),
        *((name, COUNT) for name in ("rows", "rows_of_others", "rows_of_nobody")),
        ("fault", TEXT),
    ]
)
"""A line about a document; for a rejected text, only the origin and ``fault`` are not null."""
FILES: Final = pa.schema([("hour", COUNT), ("content", pa.binary()), ("lines", pa.list_(_LINE))])
"""Parquet files of rows, by hour since 1970, in the order of their documents; without an hour, of REJECTED."""
REJECTED: Final = pa.schema([*_PLACE, ("fault", TEXT), ("size", COUNT), ("value", pa.binary())])
_FILE_ROWS: Final = 262_144
"""The rows after which a worker writes files: some 200 MB."""
_FILE_REJECTED: Final = 500
"""The rejected texts in a file, of up to KEPT_BYTES each."""
_ROW_GROUP_ROWS: Final = 131_072


def decode(
    texts: Callable[[pa.RecordBatch], Iterator[Text]], until_ms: int
) -> Callable[[Iterator[pa.RecordBatch]], Batches]:
    """Return the function for ``mapInArrow`` that makes FILES of batches; intervals must begin before ``until_ms``."""

    def decoded(batches: Iterator[pa.RecordBatch]) -> Batches:
        hours: defaultdict[int, list[tuple[Origin, UsageDocument]]] = defaultdict(list)
        refused: list[tuple[Text, str]] = []
        held = 0
        for text in (text for batch in batches for text in texts(batch)):
            try:
                document = _document(text, until_ms)
            except UnreadableError as error:
                refused.append((text._replace(value=text.value[:KEPT_BYTES]), str(error)))
            else:
                hours[document.header["time_ms"] // HOUR_MS].append((text.place, document))
                held += document.num_rows
            if held >= _FILE_ROWS or len(refused) >= _FILE_REJECTED:
                yield from _files(hours, refused)
                hours.clear()
                refused.clear()
                held = 0
        yield from _files(hours, refused)

    return decoded


def without(content: bytes, rows: Sequence[int], stays: Sequence[bool]) -> bytes:
    """Return a file of rows without some documents, given the number of rows of each, and whether it stays."""
    file = pq.ParquetFile(pa.BufferReader(content))
    is_kept = np.repeat(np.array(stays), np.array(rows))
    left = pa.BufferOutputStream()
    with pq.ParquetWriter(left, file.schema_arrow, compression="zstd") as writer:
        begin = 0
        for batch in file.iter_batches(_ROW_GROUP_ROWS):
            writer.write_batch(batch.filter(pa.array(is_kept[begin : begin + len(batch)])))
            begin += len(batch)
    return bytes(left.getvalue())


def _document(text: Text, until_ms: int) -> UsageDocument:
    check_size(text.size)
    document = read(text.value, until_ms)
    if text.stamped_ms is not None:
        check_clock(document.header["time_ms"], text.stamped_ms)
    return document


def _files(
    hours: Mapping[int, Sequence[tuple[Origin, UsageDocument]]], refused: Sequence[tuple[Text, str]]
) -> Iterator[pa.RecordBatch]:
    for hour, documents in hours.items():
        lines = [place._asdict() | _line(document) for place, document in documents]
        rows = file_of([document for _, document in documents])
        yield pa.RecordBatch.from_pylist([{"hour": hour, "content": rows, "lines": lines}], FILES)
    if refused:
        lines = [text.place._asdict() | {"fault": fault} for text, fault in refused]
        kept = [line | {"size": text.size, "value": text.value} for line, (text, _) in zip(lines, refused, strict=True)]
        content = encoded(pa.Table.from_pylist(kept, REJECTED))
        yield pa.RecordBatch.from_pylist([{"content": content, "lines": lines}], FILES)


def _line(document: UsageDocument) -> dict[str, Any]:
    counts = {"rows": document.num_rows, "rows_of_others": count_of(document, "client_id", OTHER)}
    return {name: document.header[name] for name in _SAID} | counts | {"rows_of_nobody": _of_nobody(document)}


def _of_nobody(document: UsageDocument) -> int:
    """Return the number of rows without user and address: of refused connections."""
    nobody = pa.array([True] * document.num_rows, pa.bool_())
    for name in ("user", "ip"):
        if name in document.columns:
            nobody = pc.and_(nobody, pc.is_null(document.columns[name]))
    return pc.sum(nobody).as_py() or 0


def file_of(documents: Sequence[UsageDocument]) -> bytes:
    """Return a file of rows, without the optional columns that have no value in any of them."""
    rows = table(documents)
    return encoded(rows.drop_columns([each.name for each in OPTIONAL if _is_default(rows[each.name], each.missing)]))


def _is_default(values: pa.ChunkedArray, default: Any) -> bool:
    is_default = pc.is_null(values) if default is None else pc.equal(values, default)
    return bool(pc.all(is_default).as_py())


def encoded(rows: pa.Table) -> bytes:
    """Return a Parquet file; only texts have dictionaries."""
    content = pa.BufferOutputStream()
    texts = [field.name for field in rows.schema if field.type == TEXT or pa.types.is_dictionary(field.type)]
    pq.write_table(rows, content, _ROW_GROUP_ROWS, compression="zstd", use_dictionary=texts, write_statistics=["time"])
    return bytes(content.getvalue())
