"""Documents of usage records (docs/usage-records.md): their texts are decoded, and their rows become tables."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.ingest.faults import (
    END_OF_TIME_MS,
    HEADER,
    MOST,
    MOST_AHEAD_MS,
    MOST_OLD_MS,
    WRONG_CLOCK,
    bounds_of,
    fault,
    is_of,
    moment,
    most_of,
    value_of,
)
from analysis.schema import (
    COLUMNS,
    FIELDS,
    FILE,
    FLAG,
    LEAST_LIMIT,
    LIMIT,
    MOST_DOCUMENT_BYTES,
    MOST_LABEL_BYTES,
    MOST_LIMIT,
    MOST_NAME_BYTES,
    MOST_ROWS,
    MOST_WINDOW_MS,
    TEXT,
    TIME,
    VERSION,
    Column,
)

_TEXTS: Final = tuple(column for column in COLUMNS if column.type == TEXT)
_LIMITS: Final = tuple(column for column in COLUMNS if column.type == LIMIT)
_FLAGS: Final = tuple(column for column in COLUMNS if column.type == FLAG)
_WHOLE: Final = tuple(column for column in COLUMNS if column.type in MOST)


class UnreadableError(ValueError):
    """What is wrong with a document."""


class _DoubtError(Exception):
    """There is something in a document that has to be looked at value by value."""


@dataclass(frozen=True, slots=True)
class UsageDocument:
    """A document that is readable."""

    header: dict[str, Any]
    """``faults.HEADER``."""
    num_rows: int
    numbers: dict[str, NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_]]
    """By the names of the columns that it has; of limits NaN is none."""
    texts: dict[str, pa.Array]
    """Likewise."""


def read(text: bytes, until_ms: int = END_OF_TIME_MS) -> UsageDocument:
    """Return the document that a text is. Raises UnreadableError.

    ``until_ms``: from then on (Unix time) no interval can have begun.
    """
    check_size(len(text))
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:  # brackets in brackets, a thousand deep, are none either
        raise UnreadableError("is not JSON") from None
    try:
        return _decoded(found, until_ms, bools=b"true" in text or b"false" in text)
    except (_DoubtError, struct.error, pa.ArrowException):
        said = fault(found, until_ms)
    if said is not None:
        raise UnreadableError(said)
    return _decoded(_filled(found), until_ms, bools=False)


def count_of(document: UsageDocument, column: str, text: str) -> int:
    """Return how many rows have a text in a column."""
    texts = document.texts.get(column)
    return 0 if texts is None else pc.sum(pc.equal(texts, text)).as_py() or 0


def check_size(size: int) -> None:
    """Raise UnreadableError for a text of more bytes than any document has: nobody need have read all of it."""
    if size > MOST_DOCUMENT_BYTES:
        raise UnreadableError(f"has {size} bytes, and may have {MOST_DOCUMENT_BYTES}")


def check_clock(time_ms: int, stamped_ms: int) -> None:
    """Raise UnreadableError for an interval that began long before, or after, a broker took its document in."""
    if not stamped_ms - MOST_OLD_MS <= time_ms <= stamped_ms + MOST_AHEAD_MS:
        raise UnreadableError(
            f"{WRONG_CLOCK}: time_ms is {time_ms} ({moment(time_ms)}), and a broker took it in at {moment(stamped_ms)}"
        )


def table(documents: Sequence[UsageDocument]) -> pa.Table:
    """Return the rows of documents (``schema.FILE``); texts that a document has once are dictionaries."""
    rows = np.array([each.num_rows for each in documents])
    columns: dict[str, Any] = {"time": _repeated([each.header["time_ms"] * 1000 for each in documents], TIME, rows)}
    for field in FIELDS:
        columns[field.name] = _repeated([each.header[field.name] for each in documents], field.type, rows)
    total = int(rows.sum())
    for column in COLUMNS:
        if not any(column.name in each.numbers or column.name in each.texts for each in documents):
            columns[column.name] = pa.repeat(pa.scalar(column.missing, column.type), total)
        elif column.type == TEXT:
            missing = pa.scalar(column.missing, TEXT)
            texts = [
                each.texts[column.name] if column.name in each.texts else pa.repeat(missing, each.num_rows)
                for each in documents
            ]
            columns[column.name] = pa.chunked_array(texts, TEXT)
        else:
            missing = np.nan if column.missing is None else column.missing
            numbers = [
                each.numbers[column.name] if column.name in each.numbers else np.full(each.num_rows, missing)
                for each in documents
            ]
            columns[column.name] = pa.array(np.concatenate(numbers), from_pandas=True).cast(column.type)  # NaN: null
    return pa.table({name: columns[name] for name in FILE.names})


def _repeated(values: Sequence[Any], kind: pa.DataType, times: NDArray[np.int64]) -> pa.Array:
    if kind != TEXT:
        return pa.array(np.repeat(np.array(values), times), pa.int64()).cast(kind)
    once = pa.array(values, TEXT).dictionary_encode()
    return pa.DictionaryArray.from_arrays(np.repeat(once.indices.to_numpy(), times), once.dictionary)


def _decoded(found: Any, until_ms: int, *, bools: bool) -> UsageDocument:
    """Return the document; array by array, which is ten times as fast as to ask each value what it is.

    Where anything is unusual, raises _DoubtError, struct.error or ArrowException. ``bools``: there may be some.
    """
    if type(found) is not dict or type(found.get("v")) is not int or found["v"] != VERSION:
        raise _DoubtError
    header = {field.name: _said_once(found, field) for field in HEADER}
    if header["time_ms"] >= until_ms or header["samples"] * header["sample_ms"] > MOST_WINDOW_MS:
        raise _DoubtError
    arrays, rows = _arrays(found.get("rows"))
    whole, limits = ([column for column in some if column.name in arrays] for some in (_WHOLE, _LIMITS))
    numbers: dict[str, Any] = {}
    numbers |= zip(
        [column.name for column in whole],
        _whole(whole, [arrays[column.name] for column in whole], rows, header["interval_ms"], bools=bools),
        strict=True,
    )
    numbers |= zip(
        [column.name for column in limits],
        _limits([arrays[column.name] for column in limits], rows),
        strict=True,
    )
    numbers |= {column.name: _flags(arrays[column.name]) for column in _FLAGS if column.name in arrays}
    texts = {column.name: _texts(arrays[column.name], column) for column in _TEXTS if column.name in arrays}
    return UsageDocument(header, rows, numbers, texts)


def _said_once(found: dict[str, Any], field: Column) -> Any:
    value = value_of(found, field)
    if not is_of(field.type, value):
        raise _DoubtError
    bounds = bounds_of(field, 0)
    if len(value.encode()) > MOST_LABEL_BYTES if bounds is None else not bounds[0] <= value <= bounds[1]:
        raise _DoubtError
    return value


def _arrays(found: Any) -> tuple[dict[str, list[Any]], int]:
    """Return the arrays of the columns that are there, and how long they are."""
    if type(found) is not dict:
        raise _DoubtError
    given = [found.get(column.name) for column in COLUMNS]
    if not set(map(type, given)) <= {list, NoneType}:
        raise _DoubtError
    lengths = {len(array) for array in given if array is not None}
    if len(lengths) > 1:
        raise _DoubtError
    rows = lengths.pop() if lengths else 0
    if rows > MOST_ROWS:
        raise _DoubtError
    return {column.name: array for column, array in zip(COLUMNS, given, strict=True) if array is not None}, rows


def _whole(
    columns: Sequence[Column], arrays: Sequence[list[Any]], rows: int, interval_ms: int, *, bools: bool
) -> NDArray[np.int64]:
    if bools and not all(set(map(type, values)) <= {int} for values in arrays):
        raise _DoubtError
    # struct takes integers and bools alone, in a quarter of the time that array.array takes.
    layout = f"{rows}q"
    packed = b"".join([struct.pack(layout, *values) for values in arrays])
    numbers = np.frombuffer(packed, np.int64).reshape(len(arrays), rows)
    least = [column.least for column in columns]
    most = [most_of(column, interval_ms) for column in columns]
    if rows and ((numbers.min(axis=1) < least).any() or (numbers.max(axis=1) > most).any()):
        raise _DoubtError
    return numbers


def _limits(arrays: Sequence[list[Any]], rows: int) -> NDArray[np.float64]:
    if not all(set(map(type, values)) <= {float, int, NoneType} for values in arrays):
        raise _DoubtError
    limits = np.array(arrays, np.float64).reshape(len(arrays), rows)  # null becomes NaN, which JSON has not
    if (((limits < LEAST_LIMIT) & (limits != 0)) | (limits > MOST_LIMIT)).any():
        raise _DoubtError
    return limits


def _texts(values: list[Any], column: Column) -> pa.Array:
    texts = pa.array(values, TEXT)
    if texts.nbytes > MOST_NAME_BYTES and (pc.max(pc.binary_length(texts)).as_py() or 0) > MOST_NAME_BYTES:
        raise _DoubtError
    return texts.fill_null(column.missing) if texts.null_count and column.missing is not None else texts


def _flags(values: list[Any]) -> NDArray[np.bool_]:
    if not set(map(type, values)) <= {bool, NoneType}:
        raise _DoubtError
    return np.array(values, dtype=bool)  # null is false


def _filled(found: dict[str, Any]) -> dict[str, Any]:
    """Put in the place of nulls what they are worth."""
    rows = {
        column.name: [column.missing if value is None else value for value in found["rows"][column.name]]
        for column in COLUMNS
        if found["rows"].get(column.name) is not None
    }
    return {**found, "rows": rows}
