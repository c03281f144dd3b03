"""What Python workers do with documents: they decode them and make whole files of their rows, an hour each.

Spark's own way, ``from_json``, ``explode`` and its writer, goes through rows one by one: it takes four times the CPU.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from analysis.ingest.documents import UnreadableError, count_of, read, table
from analysis.ingest.faults import END_OF_TIME_MS
from analysis.ingest.known import Hour
from analysis.sources.place import PLACE
from analysis.table.parquet import decode, encode
from analysis.table.schema import COUNT, FILE, SMALL, TEXT
from quotas.names import OTHER

INPUT: Final = ("id", "value", "topic", "partition", "offset", "file")
STAGED: Final = pa.schema(
    [
        *(("id", COUNT), ("instance", TEXT), ("boot", TEXT), ("seq", COUNT), ("time_ms", COUNT), ("rows", COUNT)),
        *(("fault", TEXT), ("topic", TEXT), ("partition", SMALL), ("offset", COUNT), ("file", TEXT), ("line", COUNT)),
        ("value", TEXT),
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


class _Lines:
    """Which line of its file a document is: those of a file come one after the other, and have numbers as they come."""

    def __init__(self) -> None:
        self._file: str | None = None
        self._first: int | None = None

    def come(self, number: int, file: str | None, offset: int | None) -> None:
        """Note the next document: its id, and where in its file the block of lines begins that it was read with."""
        if file != self._file:
            self._file = file
            self._first = number if offset == 0 else None  # before a later block, nobody has counted lines

    def at(self, number: int) -> dict[str, int | None]:
        """Return what else of its place is known: of a file's document the line, from 1, and no offset."""
        if self._file is None:
            return {}
        return {"offset": None, "line": None if self._first is None else number - self._first + 1}


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
        lines = _Lines()
        for batch in batches:
            staged: list[dict[str, Any]] = []
            begins = zip(batch.column("file").to_pylist(), batch.column("offset").to_pylist(), strict=True)
            for at, (number, begin) in enumerate(zip(batch.column("id").to_pylist(), begins, strict=True)):
                lines.come(number, *begin)
                if number in dropped:
                    continue
                text = batch.column("value")[at]
                try:
                    document = read(text.as_buffer().to_pybytes(), until_ms)
                except UnreadableError as error:
                    place = {name: batch.column(name)[at].as_py() for name in PLACE if name != "line"}
                    staged.append({"id": number, "fault": str(error), **place, **lines.at(number), "value": text})
                    continue
                header = {name: document.header[name] for name in _OF_HEADER}
                others = count_of(document, "client_id", OTHER)
                staged.append({"id": number, **header, "rows": document.num_rows, "rows_of_others": others})
                yield from files.add(Hour.of(document.header["time_ms"]), document)
            yield pa.RecordBatch.from_pylist(staged, STAGED)
        yield from files.rest()

    return stage


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
