"""Sums over rows of usage records that can be added up again: of tables, of tasks, of a whole period.

Made where the rows are; what travels is a fraction of them (``analysis.table.exchange``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.kernel.demand import Bools
from analysis.kernel.units import COLUMNS
from analysis.replay.rows import IDENTITY, active, codes, enforced, identified, interval_ms, limits, only, used
from analysis.table.arrays import Fold, added, folded, ints, times_ms, with_columns
from analysis.table.documents import BOOT, SPAN, after_gaps, documents, of_rows, united
from analysis.table.exchange import packed
from analysis.table.hashes import of_columns
from analysis.table.schema import TEXT
from quotas.connections import OTHERS
from quotas.kinds import METERED, QuotaKind

_RUN: Final = (*BOOT, "mode", "samples", "sample_ms", "controller_samples", "controller_sample_ms")
_SUMS: Final = {
    **dict.fromkeys(("interval_ms", "rows", "exempt_rows", "untold"), "sum"),
    **{f"{kind}_capped": "max" for kind in METERED},
}
_SENT_LINES: Final = 10_000
"""To the driver at once: some 5 MB, of which Java has several copies on the way."""
_ATTEMPTS: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns.used
_OF_KINDS: Final = {
    **dict.fromkeys(("rows", "sent", "requests", "throttled", "muted"), "sum"),
    **dict.fromkeys(("peak", "most"), "max"),
    "least": "min",
}


@dataclass(frozen=True, slots=True)
class Documents:
    """How rows were recorded, from tables to PACKED."""

    tasks: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of rows that are needed."""
        caps = (kind.row.cap_columns[0] for kind in METERED)
        return (*_RUN, "seq", "time", "interval_ms", "exempt", "ip", _ATTEMPTS, *caps)

    def sent(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield a line for all documents of a table whose numbers follow each other; one boot's go to one task."""
        for table in tables:
            begins, interval = times_ms(table), interval_ms(table)
            values = {"begin_ms": begins, "end_ms": begins + interval, "interval_ms": interval}
            values |= {
                "exempt_rows": np.asarray(table["exempt"].to_numpy(), dtype=np.int64),
                "untold": np.where(_is_other(table), ints(table, _ATTEMPTS), 0),
                **{
                    f"{kind}_capped": np.full_like(interval, table[kind.row.cap_columns[0]].null_count < len(table))
                    for kind in METERED
                },
            }
            values["rows"] = np.ones_like(interval)
            lines = of_rows(with_columns(table.select([*_RUN, "seq"]), values), _RUN, _SUMS)
            yield from packed(lines, of_columns(lines, ("instance", "boot")) % self.tasks)

    def received(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield a line for each way of recording, with how many ``documents`` there were of it, and are ``missing``."""
        for lines in folded(tables, partial(united, keys=_RUN, how=_SUMS)):
            found = after_gaps(lines)
            counted = with_columns(found, {"documents": documents(found)})
            yield added(counted, _RUN, {**SPAN, **_SUMS, "documents": "sum", "missing": "sum"})


def cap_columns(kind: QuotaKind) -> tuple[str, str, str]:
    """Return the columns that name the caps of a row, and the one that held it longest, and for how long they did."""
    caps, _, rule, _, _, muted_ms = kind.row.cap_columns
    return caps, rule, muted_ms


@dataclass(frozen=True, slots=True)
class Identities:
    """What was used by whom, from tables to PACKED."""

    kinds: tuple[QuotaKind, ...]
    tasks: int
    capped: tuple[QuotaKind, ...] = ()
    """Those of the kinds that anybody had caps of."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of rows that are needed."""
        of_caps = [name for kind in self.capped for name in cap_columns(kind)]
        of_kinds = [
            str(name)
            for each in (COLUMNS[kind] for kind in self.kinds)
            for name in dict.fromkeys((each.used, each.requests, each.throttled, each.muted_ms, each.limit, each.rule))
        ]
        return (*IDENTITY, "exempt", "mode", "interval_ms", "connections", *of_kinds, *of_caps)

    def sent(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield a line for each identity and what set its limits; those of one identity go to one task.

        Lines have the kinds that rows say anything of: most kinds are in no table, and most identities in many.
        """
        folds: dict[tuple[QuotaKind, ...], Fold] = {}
        for table in map(identified, tables):
            there = tuple(kind for kind in self.kinds if _says(table, kind))
            if not there:
                continue
            any_use = reduce(or_, (active(table, COLUMNS[kind]) for kind in there))
            lines = self._lines(only(table, pa.array(any_use & ~_is_other(table))), there)
            if there not in folds:
                folds[there] = Fold(partial(added, keys=self._keys(there), how=self._sums(there)))
            folds[there].take(lines)
        while folds:
            for lines in folds.popitem()[1].end():
                yield from packed(lines, of_columns(lines, ("user", "client_id", "ip")) % self.tasks)

    def received(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield a line for each identity, with the first and the last of its rules by name; "" is none."""
        keys, sums = self._keys(self.kinds), self._sums(self.kinds)
        names = keys[len(IDENTITY) :]
        for lines in folded(map(self._whole, tables), partial(added, keys=keys, how=sums)):
            rules = {rule: lines.column(rule).cast(TEXT) for rule in names}
            held = {cap_columns(kind)[1] for kind in self.capped}
            rules = {rule: named if rule in held else named.fill_null("") for rule, named in rules.items()}
            ends = {f"{rule}_{how}": named for rule, named in rules.items() for how in ("min", "max")}
            found = added(with_columns(lines, ends), IDENTITY, {**sums, **{end: end[-3:] for end in ends}})
            yield from (found.slice(at, _SENT_LINES) for at in range(0, len(found), _SENT_LINES))

    def _keys(self, kinds: Sequence[QuotaKind]) -> tuple[str, ...]:
        of_caps = (name for kind in self.capped for name in cap_columns(kind)[:2])
        return (*IDENTITY, *(str(COLUMNS[kind].rule) for kind in kinds), *of_caps)

    def _sums(self, kinds: Sequence[QuotaKind]) -> dict[str, str]:
        sums = {f"{kind}_{name}": how for kind in kinds for name, how in _OF_KINDS.items()}
        of_caps = {f"{kind}_cap_held": "sum" for kind in self.capped}
        return {**sums, **of_caps, **dict.fromkeys(("seen", "connections"), "sum")}

    def _lines(self, table: pa.Table, there: Sequence[QuotaKind]) -> pa.Table:
        keys, sums = self._keys(there), self._sums(there)
        values: dict[str, Any] = {"seen": np.ones(len(table), dtype=np.int64), "connections": table["connections"]}
        values |= {f"{kind}_cap_held": enforced(table, cap_columns(kind)[2]) for kind in self.capped}
        for kind in there:
            columns = COLUMNS[kind]
            sent, limit = used(table, columns), limits(table, columns)
            of_kind = {
                "rows": active(table, columns).astype(np.int64),
                "sent": sent,
                "requests": ints(table, columns.requests),
                "throttled": enforced(table, str(columns.throttled)),
                "muted": enforced(table, str(columns.muted_ms)),
                "peak": sent / interval_ms(table),
                "least": limit,
                "most": limit,
            }
            values |= {f"{kind}_{name}": of_kind[name] for name in _OF_KINDS}
        return added(with_columns(table.select(keys), values), keys, sums)

    def _whole(self, lines: pa.Table) -> pa.Table:
        """Return lines with what they have not: of kinds that no row said anything of."""
        for kind in self.kinds:
            if str(COLUMNS[kind].rule) not in lines.column_names:
                lines = with_columns(lines, _nothing(kind, lines))
        return lines.select([*self._keys(self.kinds), *self._sums(self.kinds)])


def _says(table: pa.Table, kind: QuotaKind) -> bool:
    """Whether any row has a limit or anything else of a kind: most kinds are in no table."""
    columns = COLUMNS[kind]
    counts = (columns.used, columns.requests, str(columns.throttled), str(columns.muted_ms))
    limited = any(table[str(name)].null_count < len(table) for name in (columns.limit, columns.rule))
    return limited or any(pc.max(table[name]).as_py() for name in counts)


def _nothing(kind: QuotaKind, lines: pa.Table) -> dict[str, Any]:
    """Return what lines have of a kind that no row says anything of."""
    rows = len(lines)
    values: dict[str, Any] = {f"{kind}_{name}": np.zeros(rows, dtype=np.int64) for name in _OF_KINDS}
    if COLUMNS[kind].per_used != 1:
        values[f"{kind}_sent"] = np.zeros(rows)
    values[f"{kind}_peak"] = np.zeros(rows)
    values |= {f"{kind}_{name}": np.full(rows, np.inf) for name in ("least", "most")}
    return {str(COLUMNS[kind].rule): pa.nulls(rows, lines.schema.field(IDENTITY[0]).type), **values}


def _is_other(table: pa.Table) -> Bools:
    """Whether each row is about addresses that are not told apart."""
    code, _ = codes(table.column("ip").combine_chunks())
    other = [each == OTHERS for each in table.column("ip").combine_chunks().dictionary.to_pylist()]
    return np.array([*other, False])[code]
