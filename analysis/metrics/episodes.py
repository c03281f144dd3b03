"""Who was throttled, when, how long and by which rule.

An episode is what an operator would call one throttling: intervals in which a client was muted, with gaps no longer
than the window of enforcement between them. So long the counter remembers what caused the mute before; a client that
is held at its quota is muted and let go in turns, and that is one episode and not a hundred.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.metrics import muted
from analysis.table import hashes
from analysis.table.arrays import Ints, added, ints, together, with_columns
from analysis.table.parquet import plain
from analysis.table.reading import Making
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT, TIME

WHO: Final = ("cluster", "broker", "user", "client_id", "kind", "rule", "mode")
"""An episode has one of each. What several proxy instances and listeners saw of a client is one episode."""
_SUMS: Final = ("muted_ms", "throttled", "throttle_ms", "bytes")
_HOW: Final = {
    **dict.fromkeys(WHO, "first"),
    "begin_ms": "min",
    "end_ms": "max",
    **dict.fromkeys(_SUMS, "sum"),
    "limit": "min",
    "instance": "count_distinct",
}
SCHEMA: Final = pa.schema(
    [
        *((name, FILE.field(name).type if name in FILE.names else TEXT) for name in WHO),
        *(("begin", TIME), ("end", TIME)),
        *((name, COUNT) for name in _SUMS),
        *(("limit", LIMIT), ("instances", COUNT)),
    ]
)


def episodes(found: pa.Table, gap_ms: int) -> pa.Table:
    """Return WHO, ``begin``, ``end``, ``limit``, ``instances`` and the sums of what was throttled in each episode.

    ``found`` is of ``metrics.muted``, all of each WHO. ``begin`` and ``end`` are those of intervals.
    ``muted_ms`` adds what each instance muted it. ``limit`` is the lowest that was in force. In mode ``shadow`` it is
    what would have been.
    """
    who = hashes.of_columns(found, WHO)
    order = np.lexsort((ints(found, "end_ms"), ints(found, "begin_ms"), who))
    rows = plain(found).take(pa.array(order))
    number = _numbers(who[order], ints(rows, "begin_ms"), ints(rows, "end_ms"), gap_ms)
    sums = added(with_columns(rows, {"number": number}), ("number",), _HOW)
    times = {name: pa.array(1000 * ints(sums, f"{name}_ms")).cast(TIME) for name in ("begin", "end")}
    return together([with_columns(sums, {**times, "instances": sums["instance"]})], SCHEMA)


def _numbers(who: Ints, begin_ms: Ints, end_ms: Ints, gap_ms: int) -> Ints:
    """Return the number of the episode of each row; ``who`` is in order, and in it what begins first."""
    begins = np.diff(who, prepend=who[:1] - 1) != 0
    reached = end_ms.copy()
    for each in np.split(reached, np.flatnonzero(begins)[1:]):
        np.maximum.accumulate(each, out=each)
    begins[1:] |= begin_ms[1:] - reached[:-1] > gap_ms
    return np.cumsum(begins)


def making(capped: Collection[str], gap_ms: int) -> Making:
    """Return the same of all that was muted (``metrics.muted``)."""
    return Making("episodes", muted.keeping(capped), _Episodes(gap_ms), SCHEMA)


@dataclass(frozen=True, slots=True)
class _Episodes:
    """What a task makes of all that was muted of some clients."""

    gap_ms: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        found = list(map(plain, tables))
        if found:
            yield episodes(pa.concat_tables(found), self.gap_ms)
