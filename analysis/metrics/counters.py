"""Rows of one quota kind, and which of them share a counter."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.kernel.units import parse_rule
from analysis.table import hashes
from analysis.table.arrays import Ints
from quotas.kinds import METERED

OF_WORD: Final = {kind.row.word: kind for kind in METERED}
KINDS: Final = tuple(OF_WORD)
"""The quota kinds that records have columns of, by what these begin with: ``produce`` for ``producer_byte_rate``."""
USED: Final = {word: kind.row.columns.used for word, kind in OF_WORD.items()}
"""The column of what was charged."""
PER_USED: Final = {word: kind.row.unit.per_used for word, kind in OF_WORD.items()}
"""How many units of the limit one of it is."""
COUNTER: Final = ("cluster", "instance", "broker", "kind", "rule", "unit_user", "unit_client_id")
"""What tells one counter from another: quotas are enforced by each proxy instance by itself, on each broker by itself.

``unit_user`` and ``unit_client_id`` are null where that part plays no role."""
NAMED_BY: Final = ("cluster", "instance", "broker", "user", "client_id")
"""What else than its rule says which counter a row was measured by."""


def counter_by_kind(table: pa.Table) -> dict[str, Ints]:
    """Return by kind the number of the counter that each row was measured by; where it has no rule, of none.

    Needs NAMED_BY, and the rule of each kind.
    """
    names = {name: hashes.of_column(table[name]) for name in NAMED_BY}
    return {kind: _counter(table, kind, names) for kind in KINDS}


def _counter(table: pa.Table, kind: str, names: Mapping[str, hashes.Hashes]) -> Ints:
    user, client_id = _told_apart(table, kind)
    parts = [names[name] for name in ("cluster", "instance", "broker")]
    parts.append(hashes.of_column(table[f"{kind}_rule"]))
    parts.append(np.full(table.num_rows, KINDS.index(kind), dtype=np.uint64))
    parts.append(np.where(user, names["user"], hashes.NOTHING))
    parts.append(np.where(client_id, names["client_id"], hashes.NOTHING))
    return hashes.mixed(parts)


def units(table: pa.Table, kind: str) -> tuple[pa.Array, pa.Array]:
    """Return ``unit_user`` and ``unit_client_id`` of the counters of rows."""
    user, client_id = (
        pc.if_else(pa.array(part), table[name].combine_chunks(), None)
        for part, name in zip(_told_apart(table, kind), ("user", "client_id"), strict=True)
    )
    return user, client_id


def _told_apart(table: pa.Table, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row whether its counter is told from others by user, and by client-id."""
    rule = table[f"{kind}_rule"].combine_chunks()
    user, client_id = _parts(rule.dictionary)
    code = rule.indices.fill_null(-1).to_numpy()
    return user[code], client_id[code]


def _parts(rules: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return whether the counters of each rule are told apart by user, and by client-id; last for none: by neither."""
    found = []
    for rule in rules.to_pylist():
        try:
            entity = parse_rule(rule)
            found.append((entity.user is not None, entity.client_id is not None))
        except ValueError:  # of another product: one counter for all
            found.append((False, False))
    parts = np.array([*found, (False, False)], dtype=bool)
    return parts[:, 0], parts[:, 1]
