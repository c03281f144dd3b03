"""Columns of Arrow tables as NumPy has them, and sums of them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.table.parquet import grouped, joined

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DAY_MS: Final = 86_400_000
MOST_SUM: Final = 2**60
"""Where sums of counts stop: a few of them can still be added up. An exbibyte, or 36 million years of milliseconds."""
_WAITING_ROWS: Final = 75_000
"""Of sums, before they are added up: some 25 MB, which are there thrice meanwhile."""


def ints(table: pa.Table, name: str) -> Ints:
    """Return a column of whole numbers; null is 0."""
    return np.asarray(pc.fill_null(table[name], 0).to_numpy(), dtype=np.int64)


def floats(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers; null is NaN."""
    return np.asarray(table[name].to_numpy(), dtype=float)


def is_one_of(column: pa.ChunkedArray, names: Collection[str]) -> Ints:
    """Return 1 for each row that has one of the names, 0 for others: of texts in a dictionary these are compared."""
    texts = column.combine_chunks()
    wanted = pa.array(list(names), pa.string())
    known = np.append(pc.is_in(texts.dictionary, value_set=wanted).to_numpy(zero_copy_only=False), False)
    return np.asarray(known[texts.indices.fill_null(len(known) - 1).to_numpy()], dtype=np.int64)


def times_ms(table: pa.Table) -> Ints:
    """Return ``time`` as Unix time."""
    return np.asarray(table["time"].cast(pa.int64()).to_numpy()) // 1000


def with_columns(table: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the table with more columns: arrays, of Arrow or NumPy."""
    for name, value in values.items():
        table = table.append_column(name, value if isinstance(value, pa.ChunkedArray) else pa.array(value))
    return table


def together(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables that have the columns of ``schema``, in any order, as one; texts are no dictionaries."""
    return pa.concat_tables([schema.empty_table(), *(each.select(schema.names).cast(schema) for each in tables)])


def ranked(table: pa.Table, most: Sequence[str], order: Sequence[str] = (), count: int | None = None) -> pa.Table:
    """Return the first rows: those with most in some columns, null last, and where that is the same by others."""
    keys = [*((name, "descending") for name in most), *((name, "ascending") for name in order)]
    return table.sort_by(keys).slice(0, count)


def added(table: pa.Table, keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    """Return a row for each combination of keys; ``how`` is a function of ``pa.TableGroupBy.aggregate`` by column.

    Sums of whole numbers, none below 0, stop at MOST_SUM: Arrow's own begin anew from below at 2^63, and say nothing.
    """
    large = [name for name, function in how.items() if function == "sum" and _may_overflow(table[name])]
    floats = {f"{name} as float": table[name].cast(pa.float64(), safe=False) for name in large}
    found = grouped(with_columns(table, floats), keys, [*how.items(), *((name, "sum") for name in floats)])
    found = found.rename_columns([*keys, *how, *floats])
    for name, about in zip(large, floats, strict=True):
        over = pc.greater_equal(found[about], float(MOST_SUM))
        sums = pc.if_else(over, pa.scalar(MOST_SUM), found[name])
        found = found.set_column(found.schema.get_field_index(name), name, sums)
    return found.select([*keys, *how])


def _may_overflow(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_integer(column.type) or not len(column):
        return False
    return (pc.max(column).as_py() or 0) * len(column) >= MOST_SUM


class Fold:
    """The sum of tables that come one after the other; few more rows than it has are kept at a time."""

    def __init__(self, add: Callable[[pa.Table], pa.Table]) -> None:
        self._add = add
        self._waiting: list[pa.Table] = []
        self._most = _WAITING_ROWS

    def take(self, table: pa.Table) -> None:
        """Add one."""
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= self._most:
            self._waiting = [self._add(joined(self._waiting))]
            # Of a sum of very many half as many again: else each would be added up again and again.
            self._most = len(self._waiting[0]) + max(_WAITING_ROWS, len(self._waiting[0]) // 2)

    def end(self) -> Iterator[pa.Table]:
        """Yield the sum, if there was any table."""
        if self._waiting:
            yield self._add(joined(self._waiting))


def folded(tables: Iterable[pa.Table], add: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
    """Yield the sum of all tables (``Fold``), if there are any."""
    fold = Fold(add)
    for table in tables:
        fold.take(table)
    yield from fold.end()


def summed(tables: Iterable[pa.Table], keys: Sequence[str], how: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield what ``added`` makes of all tables together."""
    add = partial(added, keys=keys, how=how)
    return folded(map(add, tables), add)
