"""What is wrong with a document that is not readable: value by value, slowly, and in words."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from analysis.schema import COLUMNS, COUNT, FIELDS, LIMIT, SMALL, TEXT, VERSION, Column

HEADER: Final = (*FIELDS, Column("time_ms", COUNT, missing=None))
"""What a document has once."""
END_OF_TIME_MS: Final = 253_402_300_800_000
"""The year 10000: dates of partitions have four digits."""
MOST: Final = {COUNT: 2**63 - 1, SMALL: 2**31 - 1}
"""The largest number of a type; the smallest is one more below zero."""
_NEEDED: Final = ("instance", "boot", "seq", "time_ms", "interval_ms", "rows")
"""Fields without which a row has no place. For the others there are defaults."""


def fault(found: Any) -> str | None:
    """Return the first thing that is wrong with a document, parsed; None: nothing is."""
    return next(_faults(found), None)


def is_of(kind: pa.DataType, value: Any) -> bool:
    """Whether a value is of a type. True is no number, and 1.0 no integer."""
    if kind == TEXT:
        return type(value) is str
    if kind == LIMIT:
        return type(value) in {int, float}
    return type(value) is int and -MOST[kind] - 1 <= value <= MOST[kind]


def is_below(column: Column, value: Any) -> bool:
    """Whether a number is below the least; null is not."""
    return column.least is not None and value is not None and bool(value < column.least)


def _faults(found: Any) -> Iterator[str]:
    """Yield what is wrong; each but the first may follow from one before, or fail because of it."""
    if type(found) is not dict:
        yield "is not a document: it has no v"
    version = found.get("v")
    if version is None:
        yield "has no v"
    if type(version) is int and version != VERSION:
        known = f"this Sluice reads {VERSION}; take the Sluice that wrote it, or a newer one"
        yield f"version {version} is not known: {known}"
    if wrong := [*_wrong_fields(found), *_wrong_columns(found.get("rows"))]:
        yield f"has values of another type in {', '.join(wrong)}"
    if lacking := [name for name in _NEEDED if found.get(name) is None]:
        yield f"has no {', '.join(lacking)}"
    if negative := [field.name for field in HEADER if is_below(field, found.get(field.name))]:
        yield f"is below 0: {', '.join(negative)}"
    if found["time_ms"] >= END_OF_TIME_MS:
        yield "time_ms is not in milliseconds"
    rows = found["rows"]
    arrays = [(column, rows[column.name]) for column in COLUMNS if rows.get(column.name) is not None]
    if len({len(array) for _, array in arrays}) > 1:
        yield f"arrays differ in length: {', '.join(f'{column.name} {len(array)}' for column, array in arrays)}"
    if small := [f"rows.{column.name}" for column, array in arrays if any(is_below(column, each) for each in array)]:
        yield f"has numbers that are too small in {', '.join(small)}"


def _wrong_fields(found: dict[str, Any]) -> Iterator[str]:
    if type(found["v"]) is not int:
        yield "v"
    for field in HEADER:
        value = found.get(field.name)
        if value is not None and not is_of(field.type, value):
            yield field.name


def _wrong_columns(rows: Any) -> Iterator[str]:
    if rows is None:
        return
    if type(rows) is not dict:
        yield "rows"
        return
    for column in COLUMNS:
        array = rows.get(column.name)
        if array is None:
            continue
        if type(array) is not list or not all(value is None or is_of(column.type, value) for value in array):
            yield f"rows.{column.name}"
