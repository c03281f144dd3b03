"""What each rule of each kind did: its limit, what was used under it, and who was throttled by it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import caps
from analysis.metrics.counters import KINDS, OF_WORD, USED
from analysis.table.arrays import added, ints, together, with_columns
from analysis.table.parquet import plain
from analysis.table.reading import Keeping, Making, adding
from analysis.table.schema import COUNT, LIMIT, TEXT
from quotas.kinds import QuotaKind

APART: Final = ("kind", "rule", "exempt", "shadow", "mode")
SUMS: Final = ("used", "throttled", "throttle_ms", "muted_ms")
KEPT: Final = "rules"
_CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE.row
_WORDS: Final = (*KINDS, _CONNECTIONS.word)
_USED: Final = {**USED, _CONNECTIONS.word: _CONNECTIONS.columns.used}
_ENDS: Final = ("rule", "limit", "throttled", "throttle_ms", "muted_ms")
_READ: Final = (
    *("mode", "exempt"),
    *(name for word in _WORDS for name in (_USED[word], *(f"{word}_{end}" for end in _ENDS))),
    *(name for kind in OF_WORD.values() for name in kind.row.shadow_columns),
)
_SCHEMA: Final = pa.schema(
    [
        *(("kind", TEXT), ("rule", TEXT), ("exempt", pa.bool_()), ("shadow", pa.bool_()), ("mode", TEXT)),
        *((name, COUNT) for name in SUMS),
        *(("least_limit", LIMIT), ("most_limit", LIMIT)),
    ]
)
_HOW: Final = {**dict.fromkeys(SUMS, "sum"), "least_limit": "min", "most_limit": "max"}


def making(kinds: Collection[str] = KINDS) -> Making:
    """Return the same as ``rules``, but for caps; ``kinds`` are those that anybody has caps of."""
    return Making(KEPT, keeping(kinds), iter, _SCHEMA)


def rules(found: pa.Table, capped: pa.Table) -> pa.Table:
    """Return APART, SUMS, ``least_limit`` and ``most_limit``: of kinds and rules with anything to say.

    ``found`` is what ``making`` says, and ``capped`` what ``caps.making`` does: caps have rows of their own, beside
    those of the quotas that won, and of what throttled each has its part alone.

    ``used`` is as records count it (bytes, microseconds of threads, partitions, attempts to connect). ``rule`` is null
    for what was under no limit, and for limits in ``shadow``, which records do not name. What is in ``shadow`` would
    have been throttled, and so would all in mode ``shadow``.
    """
    no = np.zeros(len(capped), dtype=bool)
    both = together([found, with_columns(capped, {"exempt": no, "shadow": no})], _SCHEMA)
    return together([added(both, APART, _HOW)], _SCHEMA)


def keeping(kinds: Collection[str]) -> Keeping:
    """Return what is kept of rows as KEPT; ``kinds`` are those that anybody has caps of."""
    read = (*_READ, *caps.read(kinds))
    return Keeping(KEPT, read, _Parts(tuple(kinds)), _SCHEMA, adding(APART, _HOW))


@dataclass(frozen=True, slots=True)
class _Parts:
    capped: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for word in _WORDS:
                columns = {name: f"{word}_{name}" for name in SUMS[1:]}
                mine = caps.own(table, word) if word in self.capped else table
                yield from _of_kind(mine, word, {"used": _USED[word], **columns}, f"{word}_limit", shadow=False)
                if word in OF_WORD:
                    limit, *figures = OF_WORD[word].row.shadow_columns
                    columns = {"used": _USED[word], **dict(zip(SUMS[1:], figures, strict=True))}
                    in_shadow = _only(table, columns, limit, *_ALWAYS).filter(pc.is_valid(pc.field(limit)))
                    yield from _of_kind(in_shadow, word, columns, limit, shadow=True)


_ALWAYS: Final = ("exempt", "mode")


def _only(table: pa.Table, columns: dict[str, str], *others: str) -> pa.Table:
    """Leave out columns that would only be copied."""
    return table.select([*dict.fromkeys((*columns.values(), *others))])


def _of_kind(table: pa.Table, word: str, columns: dict[str, str], limit: str, *, shadow: bool) -> Iterator[pa.Table]:
    """Yield the sums of a kind; names stay numbers in dictionaries, and what is the same in all rows is no key."""
    if not len(table) or not any(pc.max(table[name]).as_py() for name in columns.values()):
        return
    says = reduce(or_, (ints(table, name) > 0 for name in columns.values()))
    rules = () if shadow else (f"{word}_rule",)
    table = _only(table, columns, limit, *_ALWAYS, *rules).filter(pa.array(says)).combine_chunks()
    rule = pa.nulls(len(table), TEXT).dictionary_encode() if shadow else table[f"{word}_rule"]
    keys = {"rule": rule, "exempt": table["exempt"], "mode": table["mode"]}
    figures = {name: table[column] for name, column in columns.items()}
    limits = {"least_limit": table[limit], "most_limit": table[limit]}
    found = plain(added(with_columns(pa.table(keys), {**figures, **limits}), [*keys], _HOW))
    same = {"kind": pa.array([word] * len(found), TEXT), "shadow": pa.array([shadow] * len(found))}
    yield with_columns(found, same).select(_SCHEMA.names)
