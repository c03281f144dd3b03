"""Files of rows made fewer and larger, half a million rows at a time: in the driver, which has the only disk there is.

Within these, what a client did lies together.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.errors import AnalysisError
from analysis.table.parquet import ROW_GROUP_ROWS, decode, joined, writer
from analysis.table.schema import FILE
from analysis.upkeep.proof import Proof
from analysis.upkeep.room import room

_GROUP_ROWS: Final = 500_000
"""At a time, about: some 200 MB while they are put in order."""
_FIRST: Final = ("user", "client_id", "broker")


def columns_of(files: Iterable[Path]) -> list[str]:
    """Return the columns that any of the files has, in the table's order. Raises AnalysisError for one not known."""
    found: set[str] = set()
    for file in files:
        names = set(pq.read_schema(file).names)
        if unknown := sorted(names - set(FILE.names)):
            raise AnalysisError(
                f"{file} has columns that this Sluice does not know ({', '.join(unknown)}), and would lose: "
                "take the Sluice that wrote it, or a newer one"
            )
        found |= names
    return [name for name in FILE.names if name in found]


def rewrite(files: Iterable[Path], columns: list[str], target_bytes: int, done: Callable[[Path], None]) -> Proof:
    """Make files of about ``target_bytes`` of the rows of others, and hand over each; it goes afterwards.

    Returns what the rows that were read come to.
    """
    proof = Proof()
    with room() as folder:
        file = folder / "rows.parquet"
        out: pq.ParquetWriter | None = None
        for table in _groups(files, columns):
            proof += Proof.of(table)
            out = out or writer(str(file), table.schema)
            out.write_table(_by_client(table), ROW_GROUP_ROWS)
            if file.stat().st_size >= target_bytes:
                out.close()
                out = None
                done(file)
        if out is not None:
            out.close()
            done(file)
    return proof


def proof_of(files: Iterable[Path], columns: list[str]) -> Proof:
    """Read rows again, and return what they come to."""
    return sum((Proof.of(table) for table in _groups(files, columns)), Proof())


def _groups(files: Iterable[Path], columns: list[str]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    rows = 0
    for file in files:
        for table in decode(pa.memory_map(str(file)).read_buffer(), columns):
            waiting.append(table)
            rows += table.num_rows
            if rows >= _GROUP_ROWS:
                yield joined(waiting)
                waiting, rows = [], 0
    if rows:
        yield joined(waiting)


def _by_client(table: pa.Table) -> pa.Table:
    """Return the rows by client, and of each client as time went."""
    keys = [table[name].combine_chunks() for name in reversed(_FIRST)]
    codes = [key.indices if pa.types.is_dictionary(key.type) else key for key in keys]
    numbers = [code.fill_null(-1).to_numpy(zero_copy_only=False) for code in codes]
    times = table["time"].cast(pa.int64()).to_numpy()
    return table.take(pa.array(np.lexsort([times, *numbers])))
