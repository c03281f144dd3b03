"""A few clients among many: which rows are theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from analysis.table import hashes
from analysis.table.arrays import Ints, ints


@dataclass(frozen=True, slots=True)
class Few:
    """Numbers, not negative, of the clients that are meant. It travels to the workers."""

    columns: tuple[str, ...]
    """What names a client."""
    known: Ints
    """``hashes.of_columns`` of each, ascending."""
    numbers: Ints

    @classmethod
    def of(cls, clients: pa.Table, columns: Sequence[str], number: str) -> "Few":
        """Return what finds ``clients`` by ``columns``; column ``number`` says which is which."""
        known = hashes.of_columns(clients, columns)
        order = np.argsort(known)
        return cls(tuple(columns), known[order], ints(clients, number)[order])

    def of_rows(self, table: pa.Table) -> Ints:
        """Return the number of each row's client; -1 for any other."""
        if not len(self.known):
            return np.full(table.num_rows, -1)
        row = hashes.of_columns(table, self.columns)
        place = np.minimum(np.searchsorted(self.known, row), len(self.known) - 1)
        return np.where(self.known[place] == row, self.numbers[place], -1)
