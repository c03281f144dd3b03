"""When a client was throttled: its episodes, and who else was charged to the counter meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.client.asked import Asked
from analysis.client.charged import charged, read
from analysis.client.counters import Counter, kinds_of, own_rows
from analysis.client.findings import Companion, OneEpisode
from analysis.metrics.episodes import WHO
from analysis.table.arrays import Ints, added, ints, ranked, with_columns
from analysis.table.exchange import collected
from analysis.table.parquet import plain
from analysis.table.reading import adding
from analysis.table.scan import UsageRows
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT

MOST_EPISODES: Final = 500
"""That are shown, and whose companions are looked for: the longest."""
MOST_COMPANIONS: Final = 3
_SAME: Final = ("cluster", "instance", "broker", "user", "client_id", "mode")
_MUTED: Final = pa.schema(
    [
        *(FILE.field(name) for name in _SAME),
        *(("kind", TEXT), ("begin_ms", COUNT), ("end_ms", COUNT), ("rule", TEXT)),
        *((name, COUNT) for name in ("muted_ms", "throttled", "throttle_ms", "bytes")),
        ("limit", LIMIT),
    ]
)
_WITH: Final = pa.schema([("episode", COUNT), ("user", TEXT), ("client_id", TEXT), ("used", COUNT)])


def muted(own: UsageRows, asked: Asked, capped: Sequence[str]) -> pa.Table:
    """Return a row for each interval, kind and rule in which the client was muted: as ``metrics.muted``, of all kinds.

    ``bytes`` is what was used as records count it, whatever the kind.
    """
    work = _Muted(kinds_of(asked), tuple(capped))
    return collected(own, read(work.kinds, capped), work, _MUTED)


@dataclass(frozen=True, slots=True)
class _Muted:
    kinds: tuple[str, ...]
    capped: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for kind, _, rows in charged(table, self.kinds, self.capped):
                found = rows.filter(pc.greater(rows["muted_ms"], 0))
                values = {
                    "kind": pa.array([kind] * len(found), TEXT),
                    "begin_ms": found["time_ms"],
                    "end_ms": pc.add(found["time_ms"], found["interval_ms"]),
                    "bytes": found["used"],
                }
                yield with_columns(found.drop_columns(["time_ms"]), values)


def longest(episodes: pa.Table) -> list[OneEpisode]:
    """Return the MOST_EPISODES of ``metrics.episodes`` that muted longest."""
    rows = ranked(episodes, ["muted_ms"], ["begin", *WHO], MOST_EPISODES).to_pylist()
    return [
        OneEpisode(
            **{name: row[name] for name in ("user", "client_id", "broker", "kind", "rule", "mode", "begin", "end")},
            used=row["bytes"],
            **{name: row[name] for name in ("muted_ms", "throttled", "limit")},
        )
        for row in rows
    ]


def with_companions(
    members: UsageRows, asked: Asked, found: Sequence[OneEpisode], counters: Sequence[Counter], capped: Sequence[str]
) -> list[OneEpisode]:
    """Return the episodes with the others who were charged to the client's counter while they lasted."""
    numbers = np.unique(np.array([each.counter for each in counters if not each.is_own(asked)], dtype=np.int64))
    if not found or not len(numbers):
        return list(found)
    kinds = tuple(sorted({each.kind for each in found}))
    work = _Company(asked, kinds, tuple(capped), numbers, _Spans.of_episodes(found))
    add = adding(("episode", "user", "client_id"), {"used": "sum"})
    sums = collected(members, read(kinds, capped), work, _WITH, add)
    of: dict[int, list[Companion]] = {}
    for row in ranked(sums, ["used"], ["user", "client_id"]).to_pylist():
        of.setdefault(row["episode"], []).append(Companion(row["user"], row["client_id"], row["used"]))
    return [
        replace(each, companions=tuple(mine[:MOST_COMPANIONS]), how_many_companions=len(mine))
        for number, each in enumerate(found)
        for mine in [of.get(number, [])]
    ]


@dataclass(frozen=True, slots=True)
class _Spans:
    """Episodes by what they are of: those of one key do not overlap."""

    of: Mapping[tuple[str, str | None, int], Sequence[tuple[Ints, Ints, Ints]]]
    """By kind, rule and broker: begins, ends and numbers, of one client each."""

    @classmethod
    def of_episodes(cls, found: Sequence[OneEpisode]) -> "_Spans":
        groups: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}
        for number, each in enumerate(found):
            key = (each.kind, each.rule, each.broker, each.user, each.client_id, each.mode)
            span = (round(each.begin.timestamp() * 1000), round(each.end.timestamp() * 1000), number)
            groups.setdefault(key, []).append(span)
        of: dict[tuple[Any, ...], list[tuple[Ints, Ints, Ints]]] = {}
        for (kind, rule, broker, *_), spans in groups.items():
            begins, ends, numbers = np.array(sorted(spans), dtype=np.int64).T
            of.setdefault((kind, rule, broker), []).append((begins, ends, numbers))
        return cls(of)


@dataclass(frozen=True, slots=True)
class _Company:
    asked: Asked
    kinds: tuple[str, ...]
    capped: tuple[str, ...]
    numbers: Ints
    spans: _Spans

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            mine = own_rows(table, self.asked)
            for kind, _, rows in charged(table, self.kinds, self.capped):
                others = np.isin(ints(rows, "counter"), self.numbers) & ~mine[ints(rows, "place")]
                yield from self._within(kind, rows.filter(pa.array(others)))

    def _within(self, kind: str, rows: pa.Table) -> Iterator[pa.Table]:
        at, until = ints(rows, "time_ms"), ints(rows, "time_ms") + ints(rows, "interval_ms")
        rules, brokers = rows["rule"].cast(TEXT), ints(rows, "broker")
        names = plain(rows.select(["user", "client_id", "used"]))
        for (of_kind, rule, broker), groups in self.spans.of.items():
            if of_kind != kind or rule is None:
                continue
            same = pc.fill_null(pc.equal(rules, rule), False).to_numpy() & (brokers == broker)
            for begins, ends, numbers in groups:
                place = np.maximum(np.searchsorted(begins, until, side="left") - 1, 0)
                chosen = same & (begins[place] < until) & (at < ends[place])
                if chosen.any():
                    found = names.filter(pa.array(chosen))
                    values = {"episode": pa.array(numbers[place[chosen]])}
                    yield added(
                        with_columns(found, values).combine_chunks(), ("episode", "user", "client_id"), {"used": "sum"}
                    )
