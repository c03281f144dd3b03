"""What is wrong with a document that is not readable: value by value, slowly, and in words."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from analysis.schema import (
    COLUMNS,
    COUNT,
    FIELDS,
    FLAG,
    LEAST_LIMIT,
    LIMIT,
    MOST_LABEL_BYTES,
    MOST_LIMIT,
    MOST_NAME_BYTES,
    MOST_ROWS,
    MOST_WINDOW_MS,
    SLACK_MS,
    SMALL,
    TEXT,
    TIME_MS,
    VERSION,
    Column,
)

HEADER: Final = (*FIELDS, TIME_MS)
"""What a document has once."""
END_OF_TIME_MS: Final = 253_402_300_800_000
"""The year 10000: dates of partitions have four digits."""
WRONG_CLOCK: Final = "wrong clock"
"""How a fault begins that says so."""
MOST_AHEAD_MS: Final = 86_400_000
"""By how much clocks may differ. What is of a later time is refused: it would be the newest there is, for years."""
MOST_OLD_MS: Final = 30 * 86_400_000
"""How long a document may have waited in a proxy before a broker took it in: buffers hold hours, not days."""
MOST: Final = {COUNT: 2**63 - 1, SMALL: 2**31 - 1}
"""The largest number of a type; the smallest is one more below zero."""
_NEEDED: Final = ("instance", "boot", "seq", "time_ms", "interval_ms", "rows")
"""Fields without which a row has no place. For the others there are defaults."""
_SHOWN: Final = 40
"""Characters of a value that is wrong."""


def fault(found: Any, until_ms: int) -> str | None:
    """Return the first thing that is wrong with a document, parsed; None: nothing is.

    ``until_ms``: from then on (Unix time) no interval can have begun.
    """
    return next(_faults(found, until_ms), None)


def is_of(kind: pa.DataType, value: Any) -> bool:
    """Whether a value is of a type. True is no number, and 1.0 no integer."""
    if kind == TEXT:
        return type(value) is str
    if kind == LIMIT:
        return type(value) in {int, float}
    if kind == FLAG:
        return type(value) is bool
    return type(value) is int and -MOST[kind] - 1 <= value <= MOST[kind]


def most_of(column: Column, interval_ms: int) -> int:
    """Return the largest number that a column of counts can have in an interval."""
    most = MOST[column.type] if column.most is None else column.most
    return min(most, column.per_ms * (interval_ms + SLACK_MS)) if column.per_ms else most


def bounds_of(column: Column, interval_ms: int) -> tuple[float, float] | None:
    """Return the least and the most that a number of a column can be; None: it has no numbers."""
    if column.type == TEXT or column.least is None:
        return None
    return (0, MOST_LIMIT) if column.type == LIMIT else (column.least, most_of(column, interval_ms))


def is_below(column: Column, value: Any) -> bool:
    """Whether a number is below the least; null is not."""
    return column.least is not None and value is not None and bool(value < column.least)


def is_beyond(column: Column, value: Any, interval_ms: int) -> bool:
    """Whether a value is larger, or a limit smaller, than any that could be; null is not."""
    if value is None or column.type == FLAG:
        return False
    if column.type == TEXT:
        return _bytes_of(value) > MOST_NAME_BYTES
    if column.type == LIMIT:
        return bool(value > MOST_LIMIT or 0 < value < LEAST_LIMIT)
    return bool(value > most_of(column, interval_ms))


def _faults(found: Any, until_ms: int) -> Iterator[str]:
    """Yield what is wrong; each but the first may follow from one before, or fail because of it."""
    if type(found) is not dict:
        yield "is not a document: it has no v"
    version = found.get("v")
    if version is None:
        yield "has no v"
    if type(version) is int and version != VERSION:
        known = f"this Sluice reads {VERSION}; take the Sluice that wrote it, or a newer one"
        yield f"version {_shown(version)} is not known: {known}"
    if wrong := [*_wrong_fields(found), *_wrong_columns(found.get("rows"))]:
        yield f"has values of another type in {', '.join(wrong)}"
    if lacking := [name for name in _NEEDED if found.get(name) is None]:
        yield f"has no {', '.join(lacking)}"
    if negative := [field.name for field in FIELDS if found.get(field.name) is not None and _is_negative(found, field)]:
        yield f"is below 0: {', '.join(negative)}"
    if found["time_ms"] >= END_OF_TIME_MS:
        yield f"{WRONG_CLOCK}: time_ms is {found['time_ms']}, which is not in milliseconds"
    if found["time_ms"] < (least := TIME_MS.least or 0):
        yield f"{WRONG_CLOCK}: time_ms is {found['time_ms']}, and may be from {least} on ({moment(least)})"
    yield from _fields_out_of_bounds(found, until_ms)
    yield from _columns_out_of_bounds(found["rows"], found["interval_ms"])


def _columns_out_of_bounds(rows: dict[str, Any], interval_ms: int) -> Iterator[str]:
    arrays = [(column, rows[column.name]) for column in COLUMNS if rows.get(column.name) is not None]
    if len({len(array) for _, array in arrays}) > 1:
        yield f"arrays differ in length: {', '.join(f'{column.name} {len(array)}' for column, array in arrays)}"
    if arrays and len(arrays[0][1]) > MOST_ROWS:
        yield f"has {len(arrays[0][1])} rows, and may have {MOST_ROWS}"
    if small := [f"rows.{column.name}" for column, array in arrays if any(is_below(column, each) for each in array)]:
        yield f"has numbers that are too small in {', '.join(small)}"
    for column, array in arrays:
        for row, value in enumerate(array):
            if is_beyond(column, value, interval_ms):
                yield f"rows.{column.name}[{row}] {_beyond(column, value, interval_ms)}"


def _is_negative(found: dict[str, Any], field: Column) -> bool:
    return field.type != TEXT and bool(found[field.name] < 0)


def _fields_out_of_bounds(found: dict[str, Any], until_ms: int) -> Iterator[str]:
    for field in FIELDS:
        value = found.get(field.name)
        if value is None:
            continue
        bounds = bounds_of(field, 0)
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            yield f"{field.name} is {value}, and may be from {bounds[0]} to {bounds[1]}"
        if field.type == TEXT and _bytes_of(value) > MOST_LABEL_BYTES:
            yield f"{field.name} has {_bytes_of(value)} bytes, and may have {MOST_LABEL_BYTES}"
    if found["time_ms"] >= until_ms:
        yield f"{WRONG_CLOCK}: time_ms is {found['time_ms']}, more than a day ahead ({moment(found['time_ms'])})"
    samples, sample_ms = (value_of(found, field) for field in HEADER if field.name in {"samples", "sample_ms"})
    if samples * sample_ms > MOST_WINDOW_MS:
        yield f"samples and sample_ms make a window of {samples * sample_ms} ms, and may make {MOST_WINDOW_MS}"


def moment(time_ms: int) -> str:
    """Return Unix time in words: to the second, in UTC."""
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def value_of(found: dict[str, Any], field: Column) -> Any:
    """Return what a document says once, or what it is worth where it does not."""
    value = found.get(field.name)
    return field.missing if value is None else value


def _beyond(column: Column, value: Any, interval_ms: int) -> str:
    if column.type == TEXT:
        return f"has {_bytes_of(value)} bytes, and may have {MOST_NAME_BYTES}"
    if column.type == LIMIT:
        return f"is {_shown(value)}, and may be 0, or from {LEAST_LIMIT} to {MOST_LIMIT}"
    return f"is {_shown(value)}, and may be {most_of(column, interval_ms)} in an interval of {interval_ms} ms"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _bytes_of(text: str) -> int:
    return len(text.encode())


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
