"""Reads documents of usage records (docs/usage-records.md), and makes tables from their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.ingest.columns import MOST, Columns, UnreadableError, check, convert, most_of
from analysis.schema import (
    COLUMNS,
    FIELDS,
    LIMIT,
    MOST_DOCUMENT_BYTES,
    MOST_LABEL_BYTES,
    MOST_WINDOW_MS,
    ROW_FILE,
    TEXT,
    TIME,
    TIME_MS,
    VERSION,
    Column,
)

HEADER: Final = (*FIELDS, TIME_MS)
"""The fields of a document's head."""
END_OF_TIME_MS: Final = 253_402_300_800_000
"""The year 10000: dates of partitions have four digits."""
WRONG_CLOCK: Final = "wrong clock"
"""The begin of faults about clocks."""
MOST_AHEAD_MS: Final = 86_400_000
"""The tolerated difference of clocks. A document from the future would be the newest one for years."""
MOST_OLD_MS: Final = 30 * 86_400_000
"""The longest time between an interval and the broker's timestamp: proxies buffer for hours, not days."""
_NEEDED: Final = ("instance", "boot", "seq", "time_ms", "interval_ms", "rows")
"""Required fields."""
_SHOWN: Final = 40
"""The most characters of a wrong version in a message."""


@dataclass(frozen=True, slots=True)
class UsageDocument:
    """A valid document."""

    header: dict[str, Any]
    """The values of HEADER."""
    num_rows: int
    columns: dict[str, Any]
    """Its columns (``columns.Columns``), by name."""


def read(text: bytes, until_ms: int = END_OF_TIME_MS) -> UsageDocument:
    """Read a document, whose interval must begin before ``until_ms`` (Unix time). Raises UnreadableError."""
    check_size(len(text))
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:  # also for nesting deeper than a thousand
        raise UnreadableError("is not JSON") from None
    _check_version(found)
    header = {field.name: _value(found, field) for field in HEADER}
    columns, wrong = _typed(found, header, bools=b"true" in text or b"false" in text)
    if wrong:
        raise UnreadableError(f"has values of another type in {', '.join(wrong)}")
    if lacking := [name for name in _NEEDED if found.get(name) is None]:
        raise UnreadableError(f"has no {', '.join(lacking)}")
    for fault in _faults(header, until_ms):
        raise UnreadableError(fault)
    rows = check(columns, header["interval_ms"])
    return UsageDocument(header, rows, {column.name: array for column, array in columns.items()})


def count_of(document: UsageDocument, column: str, text: str) -> int:
    """Return the number of rows with a text in a column."""
    texts = document.columns.get(column)
    return 0 if texts is None else pc.sum(pc.equal(texts, text)).as_py() or 0


def check_size(size: int) -> None:
    """Raise UnreadableError for a text that is too large, which may have been read in part."""
    if size > MOST_DOCUMENT_BYTES:
        raise UnreadableError(f"has {size} bytes, and may have {MOST_DOCUMENT_BYTES}")


def check_clock(time_ms: int, stamped_ms: int) -> None:
    """Raise UnreadableError for an interval that began long before, or after, the broker's timestamp."""
    if not stamped_ms - MOST_OLD_MS <= time_ms <= stamped_ms + MOST_AHEAD_MS:
        raise UnreadableError(
            f"{WRONG_CLOCK}: time_ms is {time_ms} ({moment(time_ms)}), and a broker took it in at {moment(stamped_ms)}"
        )


def table(documents: Sequence[UsageDocument]) -> pa.Table:
    """Return the rows of documents, with all of ``schema.NAMES`` and FIGURES; texts of the head are dictionaries."""
    rows = np.array([each.num_rows for each in documents])
    columns: dict[str, Any] = {"time": _repeated([each.header["time_ms"] * 1000 for each in documents], TIME, rows)}
    for field in FIELDS:
        if field.is_name or field.name in ROW_FILE.names:
            columns[field.name] = _repeated([each.header[field.name] for each in documents], field.type, rows)
    total = int(rows.sum())
    for column in COLUMNS:
        there = [each.columns.get(column.name) for each in documents]
        if all(array is None for array in there):
            columns[column.name] = pa.repeat(pa.scalar(column.missing, column.type), total)
        elif column.type == TEXT:
            missing = pa.scalar(column.missing, TEXT)
            texts = [
                pa.repeat(missing, each.num_rows) if array is None else array
                for each, array in zip(documents, there, strict=True)
            ]
            columns[column.name] = pa.chunked_array(texts, TEXT)
        else:
            missing = np.nan if column.type == LIMIT else column.missing
            numbers = [
                np.full(each.num_rows, missing) if array is None else array
                for each, array in zip(documents, there, strict=True)
            ]
            columns[column.name] = pa.array(np.concatenate(numbers), from_pandas=True).cast(column.type)  # NaN: null
    return pa.table(columns)


def _repeated(values: Sequence[Any], kind: pa.DataType, times: NDArray[np.int64]) -> pa.Array:
    if kind != TEXT:
        return pa.array(np.repeat(np.array(values), times), pa.int64()).cast(kind)
    once = pa.array(values, TEXT).dictionary_encode()
    return pa.DictionaryArray.from_arrays(np.repeat(once.indices.to_numpy(), times), once.dictionary)


def moment(time_ms: int) -> str:
    """Return Unix time as text, to the second, in UTC."""
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _check_version(found: Any) -> None:
    if type(found) is not dict:
        raise UnreadableError("is not a document: it has no v")
    if (version := found.get("v")) is None:
        raise UnreadableError("has no v")
    if type(version) is int and version != VERSION:
        known = f"this Sluice reads {VERSION}; take the Sluice that wrote it, or a newer one"
        raise UnreadableError(f"version {str(version)[:_SHOWN]} is not known: {known}")


def _typed(found: dict[str, Any], header: dict[str, Any], *, bools: bool) -> tuple[Columns, list[str]]:
    """Return the columns, and the names of fields and columns of a wrong type."""
    wrong = [] if type(found["v"]) is int else ["v"]
    wrong += [field.name for field in HEADER if found.get(field.name) is not None and not _is_of(field, header)]
    rows = {} if found.get("rows") is None else found["rows"]
    if type(rows) is not dict:
        return {}, [*wrong, "rows"]
    columns, of_rows = convert(rows, bools=bools)
    return columns, [*wrong, *(f"rows.{name}" for name in of_rows)]


def _is_of(field: Column, header: dict[str, Any]) -> bool:
    """Whether a field has a value of its type. True is not a number, and 1.0 not an integer."""
    value = header[field.name]
    if field.type == TEXT:
        return type(value) is str
    return type(value) is int and -MOST[field.type] - 1 <= value <= MOST[field.type]


def _value(found: dict[str, Any], field: Column) -> Any:
    value = found.get(field.name)
    return field.missing if value is None else value


def _faults(header: dict[str, Any], until_ms: int) -> Iterator[str]:
    """Yield the faults of a header whose values have the right types."""
    numbers = [field for field in FIELDS if field.type != TEXT]
    if negative := [field.name for field in numbers if header[field.name] < 0]:
        yield f"is below 0: {', '.join(negative)}"
    time_ms, window_ms = header["time_ms"], header["samples"] * header["sample_ms"]
    if time_ms >= END_OF_TIME_MS:
        yield f"{WRONG_CLOCK}: time_ms is {time_ms}, which is not in milliseconds"
    if time_ms < (least := TIME_MS.least or 0):
        yield f"{WRONG_CLOCK}: time_ms is {time_ms}, and may be from {least} on ({moment(least)})"
    for field in FIELDS:
        value = header[field.name]
        if field.type == TEXT:
            if (size := len(value.encode())) > MOST_LABEL_BYTES:
                yield f"{field.name} has {size} bytes, and may have {MOST_LABEL_BYTES}"
        elif not (field.least or 0) <= value <= most_of(field, 0):
            yield f"{field.name} is {value}, and may be from {field.least} to {most_of(field, 0)}"
    if time_ms >= until_ms:
        yield f"{WRONG_CLOCK}: time_ms is {time_ms}, more than a day ahead ({moment(time_ms)})"
    if window_ms > MOST_WINDOW_MS:
        yield f"samples and sample_ms make a window of {window_ms} ms, and may make {MOST_WINDOW_MS}"
