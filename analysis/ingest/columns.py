"""Converts arrays of JSON values to columns, and checks their bounds array by array: ten times as fast as by value."""

import struct
from collections.abc import Mapping
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.schema import (
    COLUMNS,
    COUNT,
    FLAG,
    LEAST_LIMIT,
    LIMIT,
    MOST_LIMIT,
    MOST_NAME_BYTES,
    MOST_ROWS,
    SLACK_MS,
    SMALL,
    TEXT,
    Column,
)

MOST: Final = {COUNT: 2**63 - 1, SMALL: 2**31 - 1}
"""The largest number of a type."""
_NOT_OF_TYPE: Final = (TypeError, struct.error, pa.ArrowException)
Columns = dict[Column, Any]
"""NumPy arrays (NaN: no limit), or Arrow arrays of texts."""


class UnreadableError(ValueError):
    """A document cannot be read, with the reason."""


def convert(given: Mapping[str, Any], *, bools: bool) -> tuple[Columns, list[str]]:
    """Return a document's columns, and the names of those with values of a wrong type.

    ``bools``: whether the document may have booleans.
    """
    columns: Columns = {}
    wrong = []
    for column in COLUMNS:
        if (values := given.get(column.name)) is not None:
            try:
                columns[column] = _converted(column, values, bools=bools)
            except _NOT_OF_TYPE:
                wrong.append(column.name)
    return columns, wrong


def check(columns: Columns, interval_ms: int) -> int:
    """Return the number of rows. Raises UnreadableError if a value is out of bounds."""
    lengths = {column.name: len(array) for column, array in columns.items()}
    if len({*lengths.values()}) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise UnreadableError(f"arrays differ in length: {said}")
    rows = next(iter(lengths.values()), 0)
    if rows > MOST_ROWS:
        raise UnreadableError(f"has {rows} rows, and may have {MOST_ROWS}")
    if rows and not _are_in_bounds(columns, interval_ms):
        _refuse(columns, interval_ms)
    return rows


def most_of(column: Column, interval_ms: int) -> int:
    """Return the largest number of a column in an interval."""
    most = MOST[column.type] if column.most is None else column.most
    return min(most, column.per_ms * (interval_ms + SLACK_MS)) if column.per_ms else most


def _converted(column: Column, values: Any, *, bools: bool) -> Any:
    """Convert a column. Raises one of _NOT_OF_TYPE: True is not a number, and 1.0 not an integer."""
    if type(values) is not list:
        raise TypeError
    if column.type == TEXT:
        texts = pa.array(values, TEXT)
        return texts.fill_null(column.missing) if texts.null_count and column.missing is not None else texts
    if column.type == FLAG:
        _require(values, bool, NoneType)
        return np.array(values, dtype=bool)  # null is false
    if column.type == LIMIT:
        _require(values, float, int, NoneType)
        return np.array(values, np.float64)  # null becomes NaN, which JSON has not
    if bools:
        _require(values, int, NoneType)
    numbers = np.frombuffer(_packed(column, values), np.int64)
    if column.type == SMALL and numbers.size and not -MOST[SMALL] - 1 <= numbers.min() <= numbers.max() <= MOST[SMALL]:
        raise TypeError
    return numbers


def _require(values: list[Any], *types: type) -> None:
    if not set(map(type, values)) <= {*types}:
        raise TypeError


def _packed(column: Column, values: list[Any]) -> bytes:
    """Return integers as bytes: struct accepts only these and bools, in a quarter of array.array's time."""
    layout = f"{len(values)}q"
    try:
        return struct.pack(layout, *values)
    except struct.error:
        return struct.pack(layout, *(column.missing if value is None else value for value in values))


def _are_in_bounds(columns: Columns, interval_ms: int) -> bool:
    whole = [column for column in columns if column.type in MOST]
    if whole:
        numbers = np.stack([columns[column] for column in whole])
        least = [column.least for column in whole]
        most = [most_of(column, interval_ms) for column in whole]
        if (numbers.min(axis=1) < least).any() or (numbers.max(axis=1) > most).any():
            return False
    if limits := [array for column, array in columns.items() if column.type == LIMIT]:
        some = np.stack(limits)
        if ((some < 0) | _is_no_limit(some)).any():
            return False
    texts = [array for column, array in columns.items() if column.type == TEXT and array.nbytes > MOST_NAME_BYTES]
    return all((pc.max(pc.binary_length(each)).as_py() or 0) <= MOST_NAME_BYTES for each in texts)


def _refuse(columns: Columns, interval_ms: int) -> None:
    """Raise UnreadableError for numbers that are too small, or the first value that is too large."""
    numbers = {column: array for column, array in columns.items() if column.type in {*MOST, LIMIT}}
    if small := [f"rows.{column.name}" for column, array in numbers.items() if (array < column.least).any()]:
        raise UnreadableError(f"has numbers that are too small in {', '.join(small)}")
    for column, array in columns.items():
        most = most_of(column, interval_ms) if column.type in MOST else 0
        if column.type == TEXT:
            sizes = pc.binary_length(array).fill_null(0).to_numpy()
            beyond, said = sizes > MOST_NAME_BYTES, f"and may have {MOST_NAME_BYTES}"
        elif column.type == LIMIT:
            beyond, said = _is_no_limit(array), f"and may be 0, or from {LEAST_LIMIT} to {MOST_LIMIT}"
        else:
            beyond, said = array > most, f"and may be {most} in an interval of {interval_ms} ms"
        if column.type != FLAG and beyond.any():
            row = int(beyond.argmax())
            value = f"has {sizes[row]} bytes" if column.type == TEXT else f"is {array[row]}"
            raise UnreadableError(f"rows.{column.name}[{row}] {value}, {said}")
    raise AssertionError("a value is out of bounds, and none is")


def _is_no_limit(limits: NDArray[np.float64]) -> Any:
    return (limits > MOST_LIMIT) | ((limits > 0) & (limits < LEAST_LIMIT))
