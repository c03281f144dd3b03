"""Columns of Arrow tables as NumPy has them, and sums of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.parquet import grouped, joined

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DAY_MS: Final = 86_400_000
_WAITING_ROWS: Final = 300_000
"""Of sums, before they are added up: some 60 MB."""


def ints(table: pa.Table, name: str) -> Ints:
    """Return a column of whole numbers; null is 0."""
    return np.asarray(pc.fill_null(table[name], 0).to_numpy(), dtype=np.int64)


def floats(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers; null is NaN."""
    return np.asarray(table[name].to_numpy(), dtype=float)


def times_ms(table: pa.Table) -> Ints:
    """Return ``time`` as Unix time."""
    return np.asarray(table["time"].cast(pa.int64()).to_numpy()) // 1000


def with_columns(table: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the table with more columns: arrays, of Arrow or NumPy."""
    for name, value in values.items():
        table = table.append_column(name, value if isinstance(value, pa.ChunkedArray) else pa.array(value))
    return table


def added(table: pa.Table, keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    """Return a row for each combination of keys; ``how`` is a function of ``pa.TableGroupBy.aggregate`` by column."""
    return grouped(table, keys, list(how.items())).rename_columns([*keys, *how])


def folded(tables: Iterable[pa.Table], add: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
    """Yield the sum of all tables, if there are any; few more rows than it has are kept at a time."""
    waiting: list[pa.Table] = []
    most = _WAITING_ROWS
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= most:
            waiting = [add(joined(waiting))]
            most = _WAITING_ROWS + 2 * len(waiting[0])
    if waiting:
        yield add(joined(waiting))


def summed(tables: Iterable[pa.Table], keys: Sequence[str], how: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield what ``added`` makes of all tables together."""
    add = partial(added, keys=keys, how=how)
    return folded(map(add, tables), add)
