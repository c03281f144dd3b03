"""That two sets of rows are the same, whatever their order: how many there are, and a sum over all their values."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.table.hashes import Hashes, of_column

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_NULL: Final = np.uint64(0xD1B54A32D192ED03)
_HALF: Final = np.uint64(32)
_ALL: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Proof:
    """Of rows; those of several tables are added. Other values have the same sum with a probability of 5e-20."""

    rows: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, table: pa.Table) -> "Proof":
        """Look at a table of ``schema.FILE``, or of some of its columns; one that says nothing is as good as none."""
        total = np.zeros(len(table), np.uint64)
        for name in table.column_names:
            values = _of_values(table[name])
            if values.any():
                # What a value counts depends on its column; of 0 and of null in texts it is nothing.
                total += _stirred(values * _of_name(name))
        return cls(len(table), int(_stirred(total ^ _ODD).sum(dtype=np.uint64)))

    def __add__(self, other: "Proof") -> "Proof":
        return Proof(self.rows + other.rows, (self.checksum + other.checksum) & _ALL)


def _of_values(column: pa.ChunkedArray) -> Hashes:
    """Return a number for each; 0 for what OPTIONAL columns are worth where they are left out: null, 0 and false."""
    kind = column.type
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return of_column(column)
    values = column.combine_chunks()
    if pa.types.is_floating(kind):
        bits = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64).view(np.uint64) ^ _ODD
        return np.where(_is_null(values), np.uint64(0), bits)
    if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
        values = values.cast(pa.int64())
    numbers = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64).view(np.uint64)
    return np.where(_is_null(values), _NULL, numbers) if values.null_count else numbers


def _of_name(name: str) -> np.uint64:
    """Return an odd number for a column, the same in every process."""
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) | 1)


def _is_null(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(pc.is_null(values).to_numpy(zero_copy_only=False))


def _stirred(values: Hashes) -> Hashes:
    values = (values ^ (values >> _HALF)) * _ODD
    return np.asarray(values ^ (values >> _HALF))
