"""Splits rows into figures and names: the names of rows that agree in all of them are stored once, under a key.

A key is 64 bits of a hash of the names, so that workers agree on keys without asking each other. It is a sum over
columns without the defaults: a column that is new in a later version leaves the keys of rows without it as they were.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.kernel.units import read_rule
from analysis.schema import KEY_FILE, NAMES, ROW_FILE, TEXT
from quotas.kinds import CLIENT_KINDS
from quotas.policy import Terms
from quotas.precedence import counter_under

_REMEMBERED: Final = 1 << 20
"""Hashes of names: a few for each client."""


def split(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the figures of rows (``schema.ROW_FILE``), and a row of names (``schema.KEY_FILE``) for each key."""
    seconds = np.maximum(rows["interval_ms"].to_numpy() + 500, 1000) // 1000
    rows = rows.append_column("nominal_ms", pa.array(seconds * 1000))
    of_columns = [_hashes(rows[column.name], column.name, column.missing) for column in NAMES]
    key = np.sum([_hashes(rows["nominal_ms"], "nominal_ms", None), *of_columns], axis=0).view(np.int64)
    _, first = np.unique(key, return_index=True)
    rows = rows.append_column("key", pa.array(key))
    return rows.select(ROW_FILE.names), _with_counters(rows.select(KEY_FILE.names).take(pa.array(first)))


def _hashes(values: pa.ChunkedArray, name: str, default: Any) -> NDArray[np.uint64]:
    """Return the hash of each value of a column, 0 for nulls and the default."""
    array = values.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    hashes = [0 if value == default else _hash(name, value) for value in array.dictionary.to_pylist()]
    numbers: NDArray[np.int32] = array.indices.fill_null(len(hashes)).to_numpy()
    return np.array([*hashes, 0], np.uint64)[numbers]


@lru_cache(_REMEMBERED)
def _hash(name: str, value: object) -> int:
    return int.from_bytes(blake2b(f"{name}={value}".encode(), digest_size=8).digest())


def _with_counters(names: pa.Table) -> pa.Table:
    """Fill in the names of counters where records of earlier versions have rules alone."""
    for columns in (kind.row.columns for kind in CLIENT_KINDS):
        of_counter = (columns.counter_user, columns.counter_client_id)
        lacks = pc.and_(*(pc.is_null(names[name]) for name in of_counter))
        if pc.any(pc.and_(lacks, pc.is_valid(names[columns.rule]))).as_py():
            rows = names.select(["user", "client_id", columns.rule, *of_counter]).to_pylist()
            found = [_counter(*row.values()) for row in rows]
            for name, values in zip(of_counter, zip(*found, strict=True), strict=True):
                names = names.set_column(names.schema.get_field_index(name), name, pa.array(values, TEXT))
    return names


def _counter(
    user: str | None, client_id: str | None, rule: str | None, *said: str | None
) -> tuple[str | None, str | None]:
    if rule is None or any(name is not None for name in said):
        return said[0], said[1]
    try:
        entity, shared = read_rule(rule)
    except ValueError:  # of a later version, or forged
        return None, None
    names = counter_under((entity.user, entity.client_id), user or "", client_id or "", Terms(shared=shared))
    return names.user or None, names.client_id or None
