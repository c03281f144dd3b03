"""Rows as caps see them: a cap holds besides the quota that wins, and is charged with every byte of a row (quotas.md).

A row that has several caps counts for each of them, with what each allows; what they held it for is told of the one
that held it longest.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.kernel.units import split_rules
from analysis.metrics.counters import KINDS, NAMED_BY, OF_WORD, USED, counter, units
from analysis.table.arrays import Ints, added, ints, with_columns
from analysis.table.parquet import plain
from analysis.table.reading import Keeping, Making, adding
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT
from quotas.policy import MOST_CAPS

NAMES: Final = {word: kind.row.cap_columns[0] for word, kind in OF_WORD.items()}
"""The column that names the caps of a row, by kind."""
KEPT: Final = "caps"
CAPPED: Final = "capped"
_FIGURES: Final = ("throttled", "throttle_ms", "muted_ms")
_SUMS: Final = ("used", *_FIGURES)
_WHO: Final = (*NAMED_BY, "mode", "kind", "rule", "counter", "unit_user", "unit_client_id")
_HOW: Final = {**dict.fromkeys(_SUMS, "sum"), "least_limit": "min", "most_limit": "max"}
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in (*NAMED_BY, "mode")),
        *(("kind", TEXT), ("rule", TEXT), ("counter", COUNT), ("unit_user", TEXT), ("unit_client_id", TEXT)),
        *((name, COUNT) for name in _SUMS),
        *(("least_limit", LIMIT), ("most_limit", LIMIT)),
    ]
)


def read(kinds: Collection[str]) -> tuple[str, ...]:
    """Return the columns that ``apart`` and ``own`` need of kinds that anybody has caps of."""
    return tuple(name for kind in kinds for name in OF_WORD[kind].row.cap_columns)


def making(kinds: Collection[str] = KINDS) -> Making:
    """Return a row for each counter of a cap and client that is charged to it: the sum over clients is the counter's.

    NAMED_BY, ``mode``, ``kind``, ``rule``, ``counter`` with its ``unit_user`` and ``unit_client_id``, what was
    ``used``, how often and how long the cap held the client, and the least and the most that it allowed.
    """
    return Making(CAPPED, keeping(kinds), iter, _SCHEMA)


def keeping(kinds: Collection[str]) -> Keeping:
    """Return what is kept of rows as KEPT; ``kinds`` are those that anybody has caps of."""
    return Keeping(KEPT, _read(kinds), _Capped(tuple(kinds)), _SCHEMA, adding(_WHO, _HOW))


def _read(kinds: Collection[str]) -> tuple[str, ...]:
    return (*NAMED_BY, "mode", *(USED[kind] for kind in kinds), *read(kinds))


@dataclass(frozen=True, slots=True)
class _Capped:
    kinds: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for kind in self.kinds:
                rows = apart(table, kind)
                if not len(rows):
                    continue
                user, client_id = units(rows, kind)
                values = {
                    "kind": pa.array([kind] * len(rows), TEXT),
                    "rule": rows[f"{kind}_rule"].cast(TEXT),
                    "counter": counter(rows, kind),
                    "unit_user": user,
                    "unit_client_id": client_id,
                    "used": rows[USED[kind]],
                    **{name: rows[f"{kind}_{name}"] for name in _FIGURES},
                    **dict.fromkeys(("least_limit", "most_limit"), rows[f"{kind}_limit"]),
                }
                yield added(with_columns(plain(rows.select([*NAMED_BY, "mode"])), values), _WHO, _HOW)


def apart(table: pa.Table, kind: str) -> pa.Table:
    """Return each row once for each of its caps of a kind: with the cap as ``…_rule``, what it allows as ``…_limit``,
    and, where figures are there, what it held the client for. Rows without a cap are left out.
    """
    names = OF_WORD[kind].row.cap_columns
    table = table.filter(pc.is_valid(table[names[0]])).combine_chunks()
    rules = _Lists.of(table[names[0]].combine_chunks(), split_rules)
    limits = _Lists.of(table[names[1]].combine_chunks(), _limits)
    row = np.repeat(np.arange(len(table)), rules.counts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(rules.counts) - rules.counts, rules.counts)
    allowed = np.array([*limits.values, np.nan], dtype=float)
    told = place < limits.counts[row]
    values = {
        f"{kind}_rule": pa.DictionaryArray.from_arrays(
            pa.array((rules.first[row] + place).astype(np.int32)), pa.array(rules.values or [""], TEXT)
        )
        .cast(TEXT)
        .dictionary_encode(),
        f"{kind}_limit": pa.array(allowed[np.where(told, limits.first[row] + place, -1)], from_pandas=True),
    }
    found = table.take(pa.array(row))
    if names[2] in table.column_names:
        held = pc.fill_null(pc.equal(found[names[2]].cast(TEXT), values[f"{kind}_rule"].cast(TEXT)), False)
        held = np.asarray(held.to_numpy(zero_copy_only=False)) if len(found) else np.zeros(0, dtype=bool)
        values |= {
            f"{kind}_{name}": pa.array(np.where(held, ints(found, column), 0))
            for name, column in zip(_FIGURES, names[3:], strict=True)
        }
    return with_columns(found.drop_columns([name for name in values if name in found.column_names]), values)


def own(table: pa.Table, kind: str) -> pa.Table:
    """Return rows whose figures of throttling are those of the quota alone, without those of caps."""
    names = OF_WORD[kind].row.cap_columns
    for name, column in zip(_FIGURES, names[3:], strict=True):
        index = table.schema.get_field_index(f"{kind}_{name}")
        alone = np.maximum(ints(table, f"{kind}_{name}") - ints(table, column), 0)
        table = table.set_column(index, f"{kind}_{name}", pa.array(alone))
    return table


def _limits(text: str) -> list[float]:
    try:
        return [float(each) for each in split_rules(text)]
    except ValueError:  # of another product
        return []


@dataclass(frozen=True, slots=True)
class _Lists:
    """What texts in a column list: [row] how many, and where the first of them is."""

    values: list[str | float]
    first: Ints
    counts: Ints

    @classmethod
    def of(cls, column: pa.Array, split: Callable[[str], Sequence[str] | Sequence[float]]) -> "_Lists":
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        lists = [split(text)[:MOST_CAPS] for text in column.dictionary.to_pylist()] + [[]]
        counts = np.array([len(each) for each in lists])
        code = column.indices.fill_null(len(lists) - 1).to_numpy()
        return cls([each for some in lists for each in some], (np.cumsum(counts) - counts)[code], counts[code])
