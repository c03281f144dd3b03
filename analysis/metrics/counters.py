"""Rows of one quota kind, and which of them share a counter."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.kernel.units import read_rule
from analysis.table import hashes
from analysis.table.arrays import Ints, ints
from analysis.table.schema import TEXT
from quotas.entities import Group, Prefix
from quotas.kinds import METERED, Law, QuotaKind

OF_WORD: Final = {kind.row.word: kind for kind in METERED}
KINDS: Final = tuple(OF_WORD)
"""The quota kinds that records have columns of, by what these begin with: ``produce`` for ``producer_byte_rate``."""
USED: Final = {word: kind.row.columns.used for word, kind in OF_WORD.items()}
"""The column of what was charged."""
PER_USED: Final = {word: kind.row.unit.per_used for word, kind in OF_WORD.items()}
"""How many units of the limit one of it is."""
CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE.row
"""Of addresses, and not of clients: rows of their own."""
WINDOWS: Final = ("samples", "sample_ms", "controller_samples", "controller_sample_ms")
COUNTER: Final = ("cluster", "instance", "broker", "kind", "rule", "unit_user", "unit_client_id")
"""What tells one counter from another: quotas are enforced by each proxy instance by itself, on each broker by itself.

``unit_user`` and ``unit_client_id`` are null where that part plays no role; of a connection rate ``unit_user`` is
``ip:`` and the address. What is counted for all brokers together has broker -1."""
NAMED_BY: Final = ("cluster", "instance", "broker", "user", "client_id")
"""What else than its rule says which counter a row was measured by."""


def counter_by_kind(table: pa.Table) -> dict[str, Ints]:
    """Return by kind the number of the counter that each row was measured by; where it has no rule, of none.

    Needs NAMED_BY, and the rule of each kind.
    """
    names = {name: hashes.of_column(table[name]) for name in NAMED_BY}
    return {kind: _counter(table, kind, names) for kind in KINDS}


def counter(table: pa.Table, kind: str) -> Ints:
    """Return the same of one kind."""
    return _counter(table, kind, {name: hashes.of_column(table[name]) for name in NAMED_BY})


def _counter(table: pa.Table, kind: str, names: Mapping[str, hashes.Hashes]) -> Ints:
    user, client_id = _told_apart(table, kind)
    parts = [names[name] for name in ("cluster", "instance")]
    parts.append(np.full(table.num_rows, hashes.NOTHING) if OF_WORD[kind].row.of_cluster else names["broker"])
    parts.append(hashes.of_column(table[f"{kind}_rule"]))
    parts.append(np.full(table.num_rows, KINDS.index(kind), dtype=np.uint64))
    parts.append(np.where(user, names["user"], hashes.NOTHING))
    parts.append(np.where(client_id, names["client_id"], hashes.NOTHING))
    return hashes.mixed(parts)


def window_ms(table: pa.Table, kind: str) -> Ints:
    """Return the window in which each row was held against a limit: token buckets have one of their own.

    Needs WINDOWS.
    """
    whose = "controller_" if kind in OF_WORD and OF_WORD[kind].row.law is Law.TOKEN_BUCKET else ""
    return ints(table, f"{whose}samples") * ints(table, f"{whose}sample_ms")


def counter_of_address(table: pa.Table) -> Ints:
    """Return the number of the counter of each row's address, of its connection rate. Needs ``ip`` and the rule."""
    return hashes.of_columns(table, ("cluster", "instance", CONNECTIONS.columns.rule, "ip"))


def units(table: pa.Table, kind: str) -> tuple[pa.Array, pa.Array]:
    """Return ``unit_user`` and ``unit_client_id`` of the counters of rows, also of groups and prefixes."""
    user, client_id = (
        pc.if_else(pa.array(part), table[name].cast(TEXT).combine_chunks(), several)
        for part, name, several in zip(
            _told_apart(table, kind), ("user", "client_id"), _several(table, kind), strict=True
        )
    )
    return user, client_id


def _several(table: pa.Table, kind: str) -> tuple[pa.Array, pa.Array]:
    """Return for each row the group and the prefix that its counter is for, as metrics name them; null for none."""
    rule = table[f"{kind}_rule"].combine_chunks()
    names: list[tuple[str | None, str | None]] = []
    for text in rule.dictionary.to_pylist():
        try:
            entity, shared = read_rule(text)
        except ValueError:
            names.append((None, None))
            continue
        user = f"group:{entity.user.name}" if isinstance(entity.user, Group) else None
        client_id = f"{entity.client_id.text}*" if shared and isinstance(entity.client_id, Prefix) else None
        names.append((user, client_id))
    found = [pa.array([each[part] for each in names] + [None], TEXT) for part in range(2)]
    code = pa.array(rule.indices.fill_null(len(names)).to_numpy())
    return found[0].take(code), found[1].take(code)


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
            entity, shared = read_rule(rule)
            user, client_id = entity.user, entity.client_id
            # All of a group are counted together, and all of a prefix unless its rule says otherwise.
            told_apart = user is not None and not isinstance(user, Group)
            found.append((told_apart, client_id is not None and not (shared and isinstance(client_id, Prefix))))
        except ValueError:  # of another product: one counter for all
            found.append((False, False))
    parts = np.array([*found, (False, False)], dtype=bool)
    return parts[:, 0], parts[:, 1]
