"""Who a client is, and where it was seen: sums of its rows, of the period and of the one before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.client.findings import Facts, Sums
from analysis.metrics.counters import KINDS, OF_WORD, USED
from analysis.table.arrays import ints, summed, times_ms
from analysis.table.exchange import collected
from analysis.table.reading import adding
from analysis.table.scan import UsageRows
from analysis.table.schema import COUNT, FILE
from quotas.kinds import QuotaKind

_CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE.row
_WHO: Final = ("now", "cluster", "instance", "listener", "broker", "user", "client_id", "mode")
_SUMS: Final = ("bytes_in", "bytes_out", "requests", "request_time_ms", "connections_opened")
_OF_KINDS: Final = tuple(
    f"{word}_{end}" for word in (*KINDS, _CONNECTIONS.word) for end in ("throttled", "muted_ms", "used")
)
_MADE: Final = ("rows", "attempts", "exempt_rows", "shadow_rows", *_SUMS, *_OF_KINDS)
_HOW: Final = {**dict.fromkeys(_MADE, "sum"), "first_ms": "min", "last_ms": "max"}
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.bool_() if name == "now" else FILE.field(name).type) for name in _WHO),
        *((name, COUNT) for name in _HOW),
    ]
)
_MOST: Final = 50
"""Names that are kept of each sort."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rows of a client add up to, of both periods."""

    rows: list[Row]

    def of(self, *, now: bool) -> list[Row]:
        """Return the lines of the period, or of the one before."""
        return [row for row in self.rows if row["now"] is now]

    def sums(self, *, now: bool, episodes: int) -> Sums:
        mine = self.of(now=now)
        return Sums(
            **{name: sum(row[name] for row in mine) for name in ("rows", "attempts", *_SUMS)},
            throttled=sum(row[f"{word}_throttled"] for row in mine for word in (*KINDS, _CONNECTIONS.word)),
            muted_ms=sum(self.by_kind("muted_ms", now=now).values()),
            episodes=episodes,
        )

    def by_kind(self, what: str, *, now: bool) -> dict[str, int]:
        """Return the sums of a column (throttled, muted_ms, used) by the words of kinds."""
        mine = self.of(now=now)
        return {word: sum(row[f"{word}_{what}"] for row in mine) for word in (*KINDS, _CONNECTIONS.word)}

    def facts(self) -> Facts:
        mine = self.of(now=True)
        clients = [each for each in self._most(("user", "client_id")) if each[0] is not None]
        return Facts(
            clusters=[each for (each,) in self._most(("cluster",))],
            clients=[(str(user), str(client_id or "")) for user, client_id in clients[:_MOST]],
            how_many_clients=len(clients),
            instances=[each for (each,) in self._most(("instance",))],
            listeners=[each for (each,) in self._most(("listener",))],
            brokers=[each for (each,) in self._most(("broker",)) if each >= 0],
            modes=sorted({row["mode"] for row in mine}),
            first=_moment(min(row["first_ms"] for row in mine)),
            last=_moment(max(row["last_ms"] for row in mine)),
            exempt_rows=sum(row["exempt_rows"] for row in mine),
            shadow_rows=sum(row["shadow_rows"] for row in mine),
        )

    def _most(self, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        moved: dict[tuple[Any, ...], int] = {}
        for row in self.of(now=True):
            key = tuple(row[name] for name in names)
            moved[key] = moved.get(key, 0) + row["bytes_in"] + row["bytes_out"] + row["attempts"]
        return sorted(moved, key=lambda key: (-moved[key], str(key)))


def seen(own: UsageRows, begin_ms: int) -> Seen:
    """Add up the rows of a client; those from ``begin_ms`` on are of the period."""
    columns = dict.fromkeys(
        [
            *("time", "interval_ms", "exempt", _CONNECTIONS.columns.used, *_WHO[1:], *_SUMS),
            *USED.values(),
            *(f"{word}_{end}" for word in (*KINDS, _CONNECTIONS.word) for end in ("throttled", "muted_ms")),
            *(kind.row.shadow_columns[0] for kind in OF_WORD.values()),
        ]
    )
    found = collected(own, tuple(columns), _Added(begin_ms), _SCHEMA, adding(_WHO, _HOW))
    return Seen(found.to_pylist())


@dataclass(frozen=True, slots=True)
class _Added:
    begin_ms: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return summed(map(self._columns, tables), _WHO, _HOW)

    def _columns(self, table: pa.Table) -> pa.Table:
        at = times_ms(table)
        in_shadow = reduce(or_, (table[kind.row.shadow_columns[0]].is_valid().to_numpy() for kind in OF_WORD.values()))
        columns = {
            "now": at >= self.begin_ms,
            **{name: table[name] for name in _WHO[1:]},
            "rows": np.ones_like(at),
            "attempts": ints(table, _CONNECTIONS.columns.used),
            "exempt_rows": table["exempt"].cast(pa.int64()),
            "shadow_rows": in_shadow.astype(np.int64),
            **{name: ints(table, name) for name in _SUMS},
            "first_ms": at,
            "last_ms": at + ints(table, "interval_ms"),
        }
        for word in (*KINDS, _CONNECTIONS.word):
            columns |= {f"{word}_{end}": ints(table, f"{word}_{end}") for end in ("throttled", "muted_ms")}
            columns[f"{word}_used"] = ints(table, USED.get(word, _CONNECTIONS.columns.used))
        return pa.table(columns)


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def names_of_others(usage: UsageRows, columns: tuple[str, ...]) -> dict[str, set[str]]:
    """Return all names that rows have in some columns."""
    schema = pa.schema([("column", pa.string()), ("name", pa.string())])
    found = collected(usage, columns, _Names(columns), schema, adding(schema.names, {}))
    names: dict[str, set[str]] = {column: set() for column in columns}
    for row in found.to_pylist():
        names[row["column"]].add(row["name"])
    return names


@dataclass(frozen=True, slots=True)
class _Names:
    columns: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for column in self.columns:
                names = table[column].unique().drop_null().cast(pa.string())
                yield pa.table({"column": pa.array([column] * len(names), pa.string()), "name": names})
