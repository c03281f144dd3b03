"""What rows were charged with, and to which counter: one form for quotas, caps and connections of addresses."""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import caps
from analysis.metrics.counters import NAMED_BY, OF_WORD, WINDOWS, counter, units, window_ms
from analysis.table import hashes
from analysis.table.arrays import ints, times_ms, with_columns
from analysis.table.schema import TEXT
from quotas.kinds import QuotaKind

_CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE.row
CONNECTION: Final = _CONNECTIONS.word
_SAME: Final = ("cluster", "instance", "broker", "user", "client_id", "ip", "mode", "rule")
_TIMES: Final = ("interval_ms", *WINDOWS)
FIGURES: Final = ("used", "requests", "throttled", "throttle_ms", "muted_ms")


def read(kinds: Collection[str], capped: Collection[str]) -> tuple[str, ...]:
    """Return the columns of rows that are needed of kinds, by their words."""
    names = ["time", *_TIMES, *NAMED_BY, "ip", "mode"]
    for kind in kinds:
        names += _columns(kind).values()
    return tuple(dict.fromkeys([*names, *caps.read([kind for kind in kinds if kind in capped])]))


def charged(table: pa.Table, kinds: Collection[str], capped: Collection[str]) -> Iterator[tuple[str, bool, pa.Table]]:
    """Yield (kind, whether they are caps, rows) of what rows say of a kind.

    Rows have _SAME, ``time_ms``, ``interval_ms``, ``window_ms``, ``counter`` (its number), ``unit_user``,
    ``unit_client_id``, FIGURES and ``limit``; ``place`` is the number of the row in ``table``. ``rule`` is null for
    what was under no limit; ``broker`` is -1 where counters are for all brokers. What caps throttled is with them, and
    not with the quotas.
    """
    table = with_columns(table, {"place": np.arange(len(table))})
    for kind in kinds:
        if kind in capped:
            of_caps = caps.apart(table, kind)
            if len(of_caps):
                yield kind, True, _rows(of_caps, kind)
        rows = _rows(caps.own(table, kind) if kind in capped else table, kind)
        rows = rows.filter(pc.or_(pc.greater(rows["used"], 0), pc.greater(rows["muted_ms"], 0)))
        if len(rows):
            yield kind, False, rows.combine_chunks()


def _columns(kind: str) -> dict[str, str]:
    row = OF_WORD[kind].row if kind in OF_WORD else _CONNECTIONS
    names = row.columns
    found = {
        "rule": names.rule,
        "limit": names.limit,
        "used": names.used,
        # A connection is its own request.
        "requests": names.requests if kind in OF_WORD else names.used,
        **{name: getattr(names, name) for name in ("throttled", "throttle_ms", "muted_ms")},
    }
    return {name: str(column) for name, column in found.items()}


def _rows(table: pa.Table, kind: str) -> pa.Table:
    columns = _columns(kind)
    rows = {name: table[name] for name in _SAME if name in table.column_names and name != "rule"}
    rows |= {name: table[column] for name, column in columns.items()}
    if kind not in OF_WORD or OF_WORD[kind].row.of_cluster:
        rows["broker"] = pa.array(np.full(len(table), -1, dtype=np.int32))
    if kind in OF_WORD:
        number, (user, client_id) = counter(table, kind), units(table, kind)
    else:
        parts = [hashes.of_column(table[name]) for name in ("cluster", "instance", "ip", columns["rule"])]
        number, user, client_id = hashes.mixed(parts), pa.nulls(len(table), TEXT), pa.nulls(len(table), TEXT)
    return pa.table(
        {
            **{name: rows[name] for name in _SAME},
            "time_ms": times_ms(table),
            "interval_ms": ints(table, "interval_ms"),
            "window_ms": window_ms(table, kind),
            "counter": number,
            "unit_user": user,
            "unit_client_id": client_id,
            **{name: rows[name] for name in FIGURES},
            "limit": rows["limit"],
            "place": table["place"],
        }
    )
