"""Decodes texts in Python workers, which write whole Parquet files, and tells the driver of each document.

Spark's ``from_json`` and ``inline``, and its writer, take four times the CPU.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.fs import LocalFileSystem

from analysis.ingest.columns import UnreadableError
from analysis.ingest.documents import UsageDocument, check_clock, check_size, count_of, read, table
from analysis.ingest.duplicates import HOUR_MS
from analysis.ingest.keys import split
from analysis.ingest.source import KEPT_BYTES, Origin, Text
from analysis.schema import COUNT, OPTIONAL, SMALL, TEXT
from analysis.warehouse import located
from quotas.names import OTHER

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
FILES: Final = pa.schema([("file", TEXT), ("names", TEXT), ("hour", COUNT), ("lines", pa.list_(_LINE))])
"""Files that a worker has written: rows of an hour since 1970, and the names that came up in them; an hour of None is
of REJECTED. The lines are of its documents, in order.
"""
REJECTED_FILE: Final = pa.schema([*_PLACE, ("fault", TEXT), ("size", COUNT), ("value", pa.binary())])
_FILE_ROWS: Final = 262_144
"""The rows after which a worker writes files: some 200 MB."""
_FILE_REJECTED: Final = 500
"""The rejected texts in a file, of up to KEPT_BYTES each."""
_ROW_GROUP_ROWS: Final = 131_072


@dataclass(frozen=True, slots=True)
class Decoder:
    """The function for ``mapInArrow`` that writes the rows of texts into a folder, and tells of its files.

    A task that fails leaves files that nobody is told of.
    """

    texts: Callable[[pa.RecordBatch], Iterator[Text]]
    folder: str
    until_ms: int
    """Intervals must begin before this (Unix time)."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files(self.folder)
        hours: defaultdict[int, list[tuple[Origin, UsageDocument]]] = defaultdict(list)
        refused: list[tuple[Text, str]] = []
        known: defaultdict[int, NDArray[np.int64]] = defaultdict(lambda: np.empty(0, np.int64))
        held = 0
        for text in (text for batch in batches for text in self.texts(batch)):
            try:
                document = _document(text, self.until_ms)
            except UnreadableError as error:
                refused.append((text._replace(value=text.value[:KEPT_BYTES]), str(error)))
            else:
                hours[document.header["time_ms"] // HOUR_MS].append((text.place, document))
                held += document.num_rows
            if held >= _FILE_ROWS or len(refused) >= _FILE_REJECTED:
                yield _written(files, hours, refused, known)
                hours.clear()
                refused.clear()
                held = 0
        yield _written(files, hours, refused, known)


class Files:
    """Parquet files in a folder of any file system that Arrow knows; only texts have dictionaries."""

    def __init__(self, folder: str) -> None:
        self._files, self._root = located(folder)
        self._files.create_dir(self._root)

    def write(self, rows: pa.Table) -> str:
        """Write a file, and return its name."""
        name = f"{uuid4().hex}.parquet"
        texts = [each.name for each in rows.schema if each.type == TEXT or pa.types.is_dictionary(each.type)]
        options: Any = {"compression": "zstd", "use_dictionary": texts, "write_statistics": ["time"]}
        with self._files.open_output_stream(f"{self._root}/{name}") as stream:
            pq.write_table(rows, stream, _ROW_GROUP_ROWS, **options)
        if isinstance(self._files, LocalFileSystem):
            with Path(self._root, name).open("rb") as file:
                os.fsync(file.fileno())  # before its documents are known as stored
        return name

    def without(self, name: str, rows: Sequence[int], stays: Sequence[bool]) -> str:
        """Write a file of rows again without some documents, given the number of rows of each, and whether it stays."""
        with self._files.open_input_file(f"{self._root}/{name}") as stream:
            found = pq.read_table(stream)
        return self.write(found.filter(pa.array(np.repeat(np.array(stays), np.array(rows)))))


def _document(text: Text, until_ms: int) -> UsageDocument:
    check_size(text.size)
    document = read(text.value, until_ms)
    if text.stamped_ms is not None:
        check_clock(document.header["time_ms"], text.stamped_ms)
    return document


def _written(
    files: Files,
    hours: Mapping[int, Sequence[tuple[Origin, UsageDocument]]],
    refused: Sequence[tuple[Text, str]],
    known: defaultdict[int, NDArray[np.int64]],
) -> pa.RecordBatch:
    """Write a file of rows for each hour, one of its names that are not ``known``, and one of ``refused``."""
    told: list[dict[str, Any]] = []
    for hour, documents in hours.items():
        lines = [place._asdict() | _line(document) for place, document in documents]
        rows, names = split(table([document for _, document in documents]))
        keys = names["key"].to_numpy()
        new = names.filter(pa.array(~np.isin(keys, known[hour])))
        known[hour] = np.union1d(known[hour], keys)
        of_names = files.write(without_defaults(new)) if len(new) else None
        told.append({"file": files.write(without_defaults(rows)), "names": of_names, "hour": hour, "lines": lines})
    if refused:
        lines = [text.place._asdict() | {"fault": fault} for text, fault in refused]
        kept = [line | {"size": text.size, "value": text.value} for line, (text, _) in zip(lines, refused, strict=True)]
        file = files.write(pa.Table.from_pylist(kept, REJECTED_FILE))
        told.append({"file": file, "lines": lines})
    return pa.RecordBatch.from_pylist(told, FILES)


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


def without_defaults(rows: pa.Table) -> pa.Table:
    """Drop the optional columns that have no value in any row."""
    there = [each for each in OPTIONAL if each.name in rows.column_names]
    return rows.drop_columns([each.name for each in there if _is_default(rows[each.name], each.missing)])


def _is_default(values: pa.ChunkedArray, default: Any) -> bool:
    is_default = pc.is_null(values) if default is None else pc.equal(values, default)
    return bool(pc.all(is_default).as_py())
