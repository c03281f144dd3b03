"""Intervals in which somebody was muted: the few rows that say who was throttled, and when."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import caps
from analysis.metrics.counters import KINDS, OF_WORD, USED
from analysis.table import hashes
from analysis.table.arrays import Ints, ints, times_ms
from analysis.table.reading import Keeping, Making
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT
from quotas.kinds import BYTES

KEPT: Final = "muted"
_SAME: Final = ("cluster", "instance", "broker", "user", "client_id", "mode")
_OF_KIND: Final = ("rule", "muted_ms", "throttled", "throttle_ms", "limit")
SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in _SAME),
        *(("kind", pa.string()), ("begin_ms", pa.int64()), ("end_ms", pa.int64())),
        *(("rule", TEXT), ("muted_ms", COUNT), ("throttled", COUNT), ("throttle_ms", COUNT)),
        *(("bytes", COUNT), ("limit", LIMIT)),
    ]
)
_READ: Final = (
    *("time", "interval_ms", *_SAME),
    *(name for kind in KINDS for name in (USED[kind], *(f"{kind}_{each}" for each in _OF_KIND))),
)
_OF_BYTES: Final = {word for word, kind in OF_WORD.items() if kind.row.unit is BYTES}


def making(capped: Collection[str] = KINDS) -> Making:
    """Return a row for each interval, client and ``kind`` with any ``muted_ms``: as recorded, from ``begin_ms`` on.

    ``rule`` is what muted it. Where both its quota and a cap did, each has a row: the cap for as long as it did, and
    the quota for the rest. ``capped`` are the kinds that anybody has caps of. In mode ``shadow`` they would have been
    muted. ``bytes`` is null where the kind charges something else.
    """
    return Making(KEPT, keeping(capped), iter, SCHEMA)


def keeping(capped: Collection[str]) -> Keeping:
    """Return what is kept of rows as KEPT; ``capped`` as ``making`` has it. All of a client are in one task."""
    return Keeping(KEPT, (*_READ, *caps.read(capped)), _Muted(tuple(capped)), SCHEMA, of_task=_of_client)


def _of_client(found: pa.Table) -> Ints:
    return hashes.of_columns(found, ("user", "client_id"))


@dataclass(frozen=True, slots=True)
class _Muted:
    capped: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for kind in KINDS:
                found = table.filter(pc.greater(table[f"{kind}_muted_ms"], 0))
                if kind in self.capped and len(found):
                    yield _of_kind(caps.apart(found, kind), kind)
                    found = caps.own(found, kind)
                yield _of_kind(found, kind)


def _of_kind(found: pa.Table, kind: str) -> pa.Table:
    found = found.filter(pc.greater(found[f"{kind}_muted_ms"], 0))
    begin_ms = times_ms(found)
    return pa.table(
        {
            **{name: found[name] for name in _SAME},
            "kind": pa.repeat(kind, found.num_rows),
            "begin_ms": begin_ms,
            "end_ms": begin_ms + ints(found, "interval_ms"),
            **{name: found[f"{kind}_{name}"] for name in _OF_KIND},
            "bytes": found[USED[kind]] if kind in _OF_BYTES else pa.nulls(found.num_rows, COUNT),
        }
    )
