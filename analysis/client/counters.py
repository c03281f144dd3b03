"""Which counters a client was charged to, and which of them are one line of a plot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.client.asked import Asked, counter_is_own
from analysis.client.charged import CONNECTION, FIGURES, charged, read
from analysis.kernel.units import read_rule
from analysis.metrics.counters import KINDS
from analysis.table.arrays import Ints, added, ints, ranked, with_columns
from analysis.table.exchange import collected
from analysis.table.parquet import plain
from analysis.table.reading import adding
from analysis.table.scan import UsageRows
from analysis.table.schema import COUNT, LIMIT, TEXT

PLACE: Final = ("cluster", "instance", "broker")
_JITTER_MS: Final = 500
"""Of intervals: one may begin before the one before it has ended."""
_APART: Final = ("kind", "cap", *PLACE, "rule", "counter", "unit_user", "unit_client_id")
_HOW: Final = {**dict.fromkeys(FIGURES, "sum"), "first_ms": "min", "last_ms": "max", "least": "min", "most": "max"}
_SCHEMA: Final = pa.schema(
    [
        *(("kind", TEXT), ("cap", pa.bool_()), ("cluster", TEXT), ("instance", TEXT), ("broker", pa.int32())),
        *(("rule", TEXT), ("counter", COUNT), ("unit_user", TEXT), ("unit_client_id", TEXT)),
        *((name, COUNT) for name in (*FIGURES, "first_ms", "last_ms")),
        *(("least", LIMIT), ("most", LIMIT)),
    ]
)


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter, with what the client was charged there, and from when to when; without a rule, what held nobody."""

    kind: str
    cap: bool
    cluster: str
    instance: str
    broker: int
    rule: str | None
    counter: int
    unit_user: str | None
    unit_client_id: str | None
    used: int
    requests: int
    throttled: int
    throttle_ms: int
    muted_ms: int
    first_ms: int
    last_ms: int
    least: float | None
    most: float | None

    def is_own(self, asked: Asked) -> bool:
        """Return whether nobody else can be charged there."""
        if self.rule is None:
            return True
        try:
            entity, shared = read_rule(self.rule)
        except ValueError:  # of another product: one counter for all
            return False
        return counter_is_own(asked, entity, shared=shared)


@dataclass(frozen=True, slots=True)
class Panel:
    """Counters of one kind and place that followed each other: the client was charged to one of them at a time."""

    number: int
    counters: Sequence[Counter]

    @property
    def last(self) -> Counter:
        """The one that the client was charged to last."""
        return max(self.counters, key=lambda each: each.last_ms)

    @property
    def used(self) -> int:
        return sum(each.used for each in self.counters)

    @property
    def muted_ms(self) -> int:
        return sum(each.muted_ms for each in self.counters)


def kinds_of(asked: Asked) -> tuple[str, ...]:
    """Return the words of the kinds that rows of a client say anything of."""
    return (CONNECTION,) if asked.of_address else KINDS


def counters(own: UsageRows, asked: Asked, capped: Sequence[str]) -> list[Counter]:
    """Return all counters that ``own`` rows were charged to."""
    work = _Charged(kinds_of(asked), tuple(capped))
    found = collected(own, read(work.kinds, capped), work, _SCHEMA, adding(_APART, _HOW))
    return [Counter(**row) for row in ranked(found, (), _APART).to_pylist()]


@dataclass(frozen=True, slots=True)
class _Charged:
    kinds: tuple[str, ...]
    capped: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for kind, cap, rows in charged(table, self.kinds, self.capped):
                values = {
                    "kind": pa.array([kind] * len(rows), TEXT),
                    "cap": pa.array([cap] * len(rows)),
                    "first_ms": rows["time_ms"],
                    "last_ms": pc.add(rows["time_ms"], rows["interval_ms"]),
                    **dict.fromkeys(("least", "most"), rows["limit"]),
                }
                yield added(with_columns(plain(rows), values).combine_chunks(), _APART, _HOW)


def panels(found: Sequence[Counter], asked: Asked) -> list[Panel]:
    """Return the counters as lines of plots: those that the client was moved between, by a change of rules, are one.

    Where it was charged to several at the same time (caps, or several client-ids), each has a line.
    """
    of_place: dict[tuple[object, ...], list[Counter]] = {}
    for each in found:
        of_place.setdefault((each.kind, each.cap, each.cluster, each.instance, each.broker), []).append(each)
    # A user and a client-id have one quota at a time.
    one_quota = len(asked.names) > 1 or asked.of_address
    groups: list[list[Counter]] = []
    for mine in of_place.values():
        mine.sort(key=lambda each: (each.first_ms, each.last_ms))
        follow = all(one.last_ms <= next_.first_ms + _JITTER_MS for one, next_ in pairwise(mine))
        one = follow or (one_quota and not mine[0].cap)
        groups += [mine] if one else [[each] for each in mine]
    return [Panel(number, group) for number, group in enumerate(groups)]


@dataclass(frozen=True, slots=True)
class OnCounters:
    """Chooses rows (``kept.Mask``) of a client, and of all who are charged to some counters."""

    asked: Asked
    kinds: tuple[str, ...]
    capped: tuple[str, ...]
    numbers: Ints
    """Of counters, ascending."""

    def __call__(self, table: pa.Table) -> Ints:
        chosen = own_rows(table, self.asked)
        for _, _, rows in charged(table, self.kinds, self.capped):
            shared = np.isin(ints(rows, "counter"), self.numbers)
            chosen[ints(rows, "place")[shared]] = True
        return chosen


def own_rows(table: pa.Table, asked: Asked) -> Ints:
    """Return which rows are the client's."""
    found = np.ones(len(table), dtype=bool)
    for column, name in asked.names.items():
        found &= pc.fill_null(pc.equal(table[column].cast(TEXT), name), False).to_numpy()
    return found
