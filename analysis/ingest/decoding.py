"""Python workers decode texts: first what each document says once, or why it is none; then rows, as whole files.

Spark's ``from_json`` and ``inline`` take four times the CPU. A batch is decoded twice, because only what the first time
finds says which documents are there already, and which columns any of them has.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.ingest.documents import UnreadableError, UsageDocument, check_clock, check_size, count_of, read, table
from analysis.ingest.known import HOUR_MS
from analysis.ingest.source import KEPT_BYTES, PLACE, SOURCE
from analysis.schema import COUNT, FILE, OPTIONAL, TEXT
from quotas.names import OTHER

Batches = Iterator[pa.RecordBatch]
Place = tuple[Any, ...]
_SAID: Final = ("cluster", "instance", "boot", "seq", "time_ms", "interval_ms", "dropped_documents")
HEADERS: Final = pa.schema(
    [
        *(SOURCE.field(name) for name in PLACE),
        *((name, TEXT) for name in ("cluster", "instance", "boot")),
        *((name, COUNT) for name in ("seq", "time_ms", "interval_ms", "dropped_documents")),
        *((name, COUNT) for name in ("rows", "rows_of_others", "rows_of_nobody")),
        *(("columns", pa.list_(TEXT)), ("fault", TEXT)),
    ]
)
"""``columns``: those of OPTIONAL that a document has. With ``fault`` all but the place are null."""
REJECTED: Final = pa.schema(
    [*(SOURCE.field(name) for name in PLACE), ("fault", TEXT), ("size", COUNT), ("value", pa.binary())]
)
FILES: Final = pa.schema([("hour", COUNT), ("content", pa.binary())])
"""Whole Parquet files of rows, by the hour since 1970. Spark's writer goes through rows one by one."""
FILE_ROWS: Final = 500_000
"""A worker that has as many makes files of them: what it holds stays at some 300 MB."""
ROW_GROUP_ROWS: Final = 131_072


def headers(until_ms: int) -> Callable[[Batches], Batches]:
    """Return what makes HEADERS of SOURCE, for ``mapInArrow``; from ``until_ms`` on no interval can have begun."""

    def decode(batches: Batches) -> Batches:
        for batch in batches:
            lines: list[dict[str, Any]] = []
            for at, place in enumerate(_places(batch)):
                line: dict[str, Any] = dict(zip(PLACE, place, strict=True))
                try:
                    lines.append({**line, **_header(_document(batch, at, until_ms))})
                except UnreadableError as error:
                    lines.append({**line, "fault": str(error)})
            yield pa.RecordBatch.from_pylist(lines, HEADERS)

    return decode


def files(skipped: Collection[Place], columns: Collection[str], until_ms: int) -> Callable[[Batches], Batches]:
    """Return what makes FILES of SOURCE: rows of hours, with those of OPTIONAL that are among ``columns``.

    Documents of the places that are ``skipped`` are left out.
    """

    def decode(batches: Batches) -> Batches:
        hours: defaultdict[int, list[UsageDocument]] = defaultdict(list)
        held = 0
        for batch in batches:
            for at, place in enumerate(_places(batch)):
                if place in skipped:
                    continue
                try:
                    document = _document(batch, at, until_ms)
                except UnreadableError:
                    continue  # told, and kept, the first time
                if document.num_rows:
                    hours[document.header["time_ms"] // HOUR_MS].append(document)
                held += document.num_rows
                if held >= FILE_ROWS:
                    yield from _encoded(hours, columns)
                    hours.clear()
                    held = 0
        yield from _encoded(hours, columns)

    return decode


def rejected(until_ms: int) -> Callable[[Batches], Batches]:
    """Return what makes REJECTED of SOURCE: texts that are no documents, and why."""

    def decode(batches: Batches) -> Batches:
        for batch in batches:
            lines = []
            for at, place in enumerate(_places(batch)):
                try:
                    _document(batch, at, until_ms)
                except UnreadableError as error:
                    kept = (batch.column("value")[at].as_py() or b"")[:KEPT_BYTES]
                    size = batch.column("size")[at].as_py()
                    lines.append(
                        {**dict(zip(PLACE, place, strict=True)), "fault": str(error), "size": size, "value": kept}
                    )
            yield pa.RecordBatch.from_pylist(lines, REJECTED)

    return decode


def _places(batch: pa.RecordBatch) -> Iterator[Place]:
    return zip(*(batch.column(name).to_pylist() for name in PLACE), strict=True)


def _document(batch: pa.RecordBatch, at: int, until_ms: int) -> UsageDocument:
    """Return the document of a row of SOURCE. Raises UnreadableError."""
    check_size(batch.column("size")[at].as_py())
    value = batch.column("value")[at]
    document = read(value.as_buffer().to_pybytes() if value.is_valid else b"", until_ms)
    if (stamped_ms := batch.column("stamped_ms")[at].as_py()) is not None:
        check_clock(document.header["time_ms"], stamped_ms)
    return document


def _header(document: UsageDocument) -> dict[str, Any]:
    said = {name: document.header[name] for name in _SAID}
    there = document.numbers.keys() | document.texts.keys()
    counts = {"rows": document.num_rows, "rows_of_others": count_of(document, "client_id", OTHER)}
    return {**said, **counts, "rows_of_nobody": _of_nobody(document), "columns": [n for n in OPTIONAL if n in there]}


def _of_nobody(document: UsageDocument) -> int:
    """Return how many rows are neither of a client nor of an address: of refused connections."""
    nobody = pa.array([True] * document.num_rows, pa.bool_())
    for name in ("user", "ip"):
        if name in document.texts:
            nobody = pc.and_(nobody, pc.is_null(document.texts[name]))
    return pc.sum(nobody).as_py() or 0


def _encoded(hours: Mapping[int, Sequence[UsageDocument]], columns: Collection[str]) -> Batches:
    names = [field.name for field in FILE if field.name not in OPTIONAL or field.name in columns]
    texts = [field.name for field in FILE if field.type == TEXT and field.name in names]
    for hour, documents in hours.items():
        content = pa.BufferOutputStream()
        rows = table(documents).select(names)
        pq.write_table(rows, content, ROW_GROUP_ROWS, compression="zstd", use_dictionary=texts)
        yield pa.RecordBatch.from_pylist([{"hour": hour, "content": bytes(content.getvalue())}], FILES)
