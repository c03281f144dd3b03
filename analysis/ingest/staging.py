"""What Python workers do with documents: they decode them and make whole files of their rows, an hour each.

Spark's own way, ``from_json``, ``explode`` and its writer, goes through rows one by one: it takes four times the CPU.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from analysis.ingest.documents import UnreadableError, UsageDocument, check_clock, check_size, count_of, read, table
from analysis.ingest.faults import END_OF_TIME_MS
from analysis.ingest.known import Hour
from analysis.sources.place import KEPT_BYTES, PLACE, SOURCE
from analysis.table.parquet import decode, encode
from analysis.table.schema import COUNT, FILE, SMALL, TEXT
from quotas.names import OTHER

INPUT: Final = pa.schema([("id", COUNT), *SOURCE])
STAGED: Final = pa.schema(
    [
        *(("id", COUNT), ("instance", TEXT), ("boot", TEXT), ("seq", COUNT), ("time_ms", COUNT), ("rows", COUNT)),
        *(("fault", TEXT), ("topic", TEXT), ("partition", SMALL), ("offset", COUNT), ("file", TEXT), ("line", COUNT)),
        *(("size", COUNT), ("value", pa.binary())),
        *(("date", TEXT), ("hour", SMALL), ("content", pa.binary())),
        *(("dropped_documents", COUNT), ("rows_of_others", COUNT)),
    ]
)
"""Three kinds of rows: a document that is readable; one that has a fault, with its place and text; a file."""
_OF_HEADER: Final = ("instance", "boot", "seq", "time_ms", "dropped_documents")
FILES: Final = pa.schema([STAGED.field(name) for name in ("date", "hour", "content")])
FILE_ROWS: Final = 500_000
"""A worker that has as many makes files of them and begins anew: what it holds stays at some 300 MB."""

Batches = Iterator[pa.RecordBatch]


class _Counted(Protocol):
    @property
    def num_rows(self) -> int: ...


_Rows = TypeVar("_Rows", bound=_Counted)


def staging(dropped: Collection[int] = (), until_ms: int = END_OF_TIME_MS) -> Callable[[Batches], Batches]:
    """Return what makes STAGED of documents (INPUT), for ``mapInArrow``; ``dropped``: ids of those to pass over.

    ``until_ms``: from then on (Unix time) no interval can have begun.
    """

    def stage(batches: Batches) -> Batches:
        files = _Files(table)
        for batch in batches:
            staged: list[dict[str, Any]] = []
            for at, number in enumerate(batch.column("id").to_pylist()):
                if number in dropped:
                    continue
                try:
                    document = _document(batch, at, until_ms)
                except UnreadableError as error:
                    place = {name: batch.column(name)[at].as_py() for name in (*PLACE, "size")}
                    kept = (batch.column("value")[at].as_py() or b"")[:KEPT_BYTES]
                    staged.append({"id": number, "fault": str(error), **place, "value": kept})
                    continue
                header = {name: document.header[name] for name in _OF_HEADER}
                others = count_of(document, "client_id", OTHER)
                staged.append({"id": number, **header, "rows": document.num_rows, "rows_of_others": others})
                yield from files.add(Hour.of(document.header["time_ms"]), document)
            yield pa.RecordBatch.from_pylist(staged, STAGED)
        yield from files.rest()

    return stage


def _document(batch: pa.RecordBatch, at: int, until_ms: int) -> UsageDocument:
    """Return the document of a row of INPUT. Raises UnreadableError."""
    if (fault := batch.column("fault")[at].as_py()) is not None:
        raise UnreadableError(fault)
    check_size(batch.column("size")[at].as_py())
    value = batch.column("value")[at]
    document = read(value.as_buffer().to_pybytes() if value.is_valid else b"", until_ms)
    if (stamped_ms := batch.column("stamped_ms")[at].as_py()) is not None:
        check_clock(document.header["time_ms"], stamped_ms)
    return document


def merge(batches: Batches) -> Batches:
    """Make few files of many, for ``mapInArrow``: both ways STAGED."""
    files = _Files(pa.concat_tables)
    for batch in batches:
        for file in batch.select(FILES.names).to_pylist():
            for rows in decode(pa.py_buffer(file["content"]), FILE.names):
                yield from files.add(Hour(file["date"], file["hour"]), rows)
    yield from files.rest()


class _Files(Generic[_Rows]):
    """Rows that are to become files, by the hour."""

    def __init__(self, joined: Callable[[Sequence[_Rows]], pa.Table]) -> None:
        self._joined = joined
        self._hours: defaultdict[Hour, list[_Rows]] = defaultdict(list)
        self._rows = 0

    def add(self, hour: Hour, rows: _Rows) -> Batches:
        """Yield files when there are FILE_ROWS."""
        if rows.num_rows:
            self._hours[hour].append(rows)
            self._rows += rows.num_rows
            if self._rows >= FILE_ROWS:
                yield from self.rest()

    def rest(self) -> Batches:
        """Yield files of all that there is, and begin anew."""
        while self._hours:
            hour, rows = self._hours.popitem()
            file = {"date": hour.date, "hour": hour.hour, "content": encode(self._joined(rows))}
            yield pa.RecordBatch.from_pylist([file], STAGED)
        self._rows = 0
