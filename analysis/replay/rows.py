"""What rows of usage records say, as arrays of them (``scan.UsageRows``)."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.kernel.demand import Bools, Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.units import Columns
from analysis.table.arrays import Ints, ints

IDENTITY: Final = ("cluster", "instance", "listener", "broker", "user", "client_id", "ip")
"""Whom a row is about: a client, or an address. Listeners are told apart: two rows of one client may be of the same
second. In rows as they come some are null (``identified``)."""
ENFORCE: Final = "enforce"
_LONGEST_INTERVAL_MS: Final = 3_600_000
"""A proxy that was suspended for longer says so in one interval; nobody knows when in it what was used."""


def identified(table: pa.Table) -> pa.Table:
    """Return the rows of clients and of addresses, "" for the names that they have not, without those of the exempt."""
    known = pc.or_(table["user"].is_valid(), table["ip"].is_valid())
    table = only(table, pc.and_(known, pc.invert(table["exempt"])))
    for name in ("user", "client_id", "ip"):
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, _named(table.column(index).combine_chunks()))
    return table


def only(table: pa.Table, chosen: pa.ChunkedArray) -> pa.Table:
    """Return the rows that are chosen, without a copy where all are, as in most tables."""
    return table if pc.all(chosen, skip_nulls=False).as_py() else table.filter(chosen)


def _named(names: pa.Array) -> pa.Array:
    """Put "" in the place of nulls, of names in a dictionary."""
    if not names.null_count:
        return names
    dictionary = pa.concat_arrays([names.dictionary, pa.array([""], names.dictionary.type)])
    nothing = pc.index(names.dictionary, "").as_py()
    codes = names.indices.fill_null(len(names.dictionary) if nothing < 0 else nothing)
    return pa.DictionaryArray.from_arrays(codes, dictionary if nothing < 0 else names.dictionary)


def interval_ms(table: pa.Table) -> Ints:
    """Return the length of each interval: between 1 ms and an hour."""
    return np.clip(ints(table, "interval_ms"), 1, _LONGEST_INTERVAL_MS)


def enforced(table: pa.Table, name: str) -> Ints:
    """Return a column of throttling, 0 where it was not enforced."""
    mode = table.column("mode").combine_chunks()
    code, _ = codes(mode)
    # Of texts in dictionaries only the few that differ are compared.
    held = [each == ENFORCE for each in mode.dictionary.to_pylist()]
    return np.where(np.array([*held, False])[code], ints(table, name), 0)


def limits(table: pa.Table, columns: Columns) -> Floats:
    """Return the limits that were in force, infinite without one."""
    return np.asarray(table.column(str(columns.limit)).fill_null(np.inf).to_numpy(), dtype=float)


def used(table: pa.Table, columns: Columns) -> Ints | Floats:
    """Return what was charged, in units of the limit times seconds; bytes stay whole numbers."""
    found = ints(table, columns.used)
    return found if columns.per_used == 1 else np.asarray(found * columns.per_used, dtype=float)


def active(table: pa.Table, columns: Columns) -> Bools:
    """Whether each row says anything of a kind."""
    return (ints(table, columns.used) > 0) | (ints(table, str(columns.muted_ms)) > 0)


def codes(column: pa.Array) -> tuple[Indices, int]:
    """Return [row] a number for its value, a dictionary's own where it is one, and how many there are; null is last."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    last = len(column.dictionary)
    return column.indices.fill_null(last).to_numpy().astype(np.intp), last + 1


def texts(column: pa.ChunkedArray) -> list[Any]:
    """Return a column of texts as Python's, None for null; rows with the same text have one object."""
    coded = column.combine_chunks()
    if not pa.types.is_dictionary(coded.type):
        coded = coded.dictionary_encode()
    known = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
    return list(known[codes(coded)[0]])
