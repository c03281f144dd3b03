"""The moments of one broker as NumPy has them: who peaked in which, and what others were delayed in each."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.coincidence import Flags, Others
from analysis.metrics.own_use import agreed
from analysis.metrics.period import Period
from analysis.table.arrays import Floats, Ints, floats, ints
from analysis.table.parts import Parts

MOMENT_S: Final = 10
PEAK_OVER_AVERAGE: Final = 2.0
PEAK_SHARE: Final = 0.02
"""Of all bytes of the broker: a client that moves less is not what others wait for."""
PLACE: Final = ("cluster", "broker")
CLIENT: Final = (*PLACE, "user", "client_id")
MEASURES: Final = {"muted_ms": ("delay_ms", "usual_delay_us"), "request_time_ms": ("request_time_ms", "usual_time_us")}
"""How others may be delayed, by the column of records that says so: the sums of what was, and of what is usual."""
SHARED: Final = ("shared_usual_us", "shared_mean_us")
"""Of a candidate: what of ``usual_delay_us`` is of others that share a counter with it, and what is to be expected of
these in its place. What one of them uses, the other cannot: own use does not clear the other one."""
SUMS: Final = ("bytes", "requests", *(name for names in MEASURES.values() for name in names), *SHARED)
BLOCK_MOMENTS: Final = 3600 // MOMENT_S
"""Of an hour: those that are compared with each other."""
_EVERYBODY_ELSE: Final = 0
_MOST_ROWS: Final = 4_000_000
"""Of moments, in the driver at a time: some 300 MB."""


@dataclass(frozen=True, slots=True)
class BrokerMoments:
    """All sums of one broker in a period."""

    place: tuple[str, int]
    """PLACE"""
    first: int
    """Number of its first moment, since 1970."""
    count: int
    totals: dict[str, Floats]
    """By the names of SUMS, [moment]."""
    own: dict[int, tuple[Ints, dict[str, Floats]]]
    """By number of candidates: moments (from 0), and sums in these."""

    def of(self, number: int, name: str) -> Floats:
        """Return a sum of a candidate, [moment]."""
        found = np.zeros(self.count)
        at, sums = self.own[number]
        found[at] = sums[name]
        return found

    def elsewhere(self, number: int, name: str) -> Floats:
        """Return the sum of all but a candidate, [moment]."""
        return np.maximum(self.totals[name] - self.of(number, name), 0)

    def peak(self, number: int) -> Flags:
        """Return in which moments a candidate moves far more than it does on average, and not too little."""
        bytes_ = self.of(number, "bytes")
        loud = bytes_ >= PEAK_OVER_AVERAGE * bytes_.mean()
        return np.asarray((bytes_ > 0) & loud & (bytes_ >= PEAK_SHARE * self.totals["bytes"]), dtype=bool)

    def others(self, number: int, measure: str) -> Others:
        """Return how all but a candidate were delayed, by one of MEASURES."""
        delay, usual = MEASURES[measure]
        expected = self.elsewhere(number, usual) if measure != "muted_ms" else self.usual_mutes(number)
        return Others(self.elsewhere(number, delay), expected, self.block())

    def usual_mutes(self, number: int) -> Floats:
        """Return for how long all but a candidate are usually muted, seen from it, [moment]."""
        own_use, means = (self.of(number, name) for name in SHARED)
        return np.maximum(self.elsewhere(number, "usual_delay_us") - own_use, 0) + means

    def block(self) -> Ints:
        """Return the hour of each moment."""
        return (self.first + np.arange(self.count)) // BLOCK_MOMENTS


def moments_of(period: Period) -> int:
    """Return how many moments the period touches."""
    return max(-int(-period.end.timestamp() // MOMENT_S) - _first(period), 1)


def by_broker(sums: Parts, period: Period, only: Collection[tuple[str, int]] | None = None) -> Iterator[BrokerMoments]:
    """Yield the sums that ``moments.moments`` returned, of each broker in order; of some only, where they are named."""
    rows: Counter[tuple[str, int]] = Counter()
    for each in sums.tables(PLACE):
        found = each.group_by([*PLACE], use_threads=False).aggregate([([], "count_all")])
        rows.update({tuple(row[name] for name in PLACE): row["count_all"] for row in found.to_pylist()})
    everything = sums.whole() if rows.total() <= _MOST_ROWS else None
    for cluster, broker in sorted(rows if only is None else only):
        if everything is None:
            table = sums.within("cluster", cluster, cluster).within("broker", broker, broker).whole()
        else:
            same = pc.and_(pc.equal(everything["cluster"], cluster), pc.equal(everything["broker"], broker))
            table = everything.filter(same)
        yield _of_broker((cluster, broker), table, period)


def _of_broker(place: tuple[str, int], table: pa.Table, period: Period) -> BrokerMoments:
    first, count = _first(period), moments_of(period)
    moment, number = ints(table, "moment") - first, ints(table, "number")
    values = {name: floats(table, name) for name in SUMS}
    totals = {name: np.bincount(moment, value, count).astype(float) for name, value in values.items()}
    order = np.argsort(number, kind="stable")
    numbers, starts = np.unique(number[order], return_index=True)
    own: dict[int, tuple[Ints, dict[str, Floats]]] = {}
    for candidate, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        if candidate != _EVERYBODY_ELSE:
            # Of one moment several tasks may have something.
            at, row = np.unique(moment[rows], return_inverse=True)
            own[candidate] = (at, {name: np.bincount(row, value[rows]).astype(float) for name, value in values.items()})
    _agree(first, totals, own)
    return BrokerMoments(place, first, count, totals, own)


def _agree(first: int, totals: dict[str, Floats], own: dict[int, tuple[Ints, dict[str, Floats]]]) -> None:
    """Make what requests usually take agree with each hour: of each candidate with its own, of all others with theirs.

    An hour in which others are faster than usual would otherwise have all that a candidate's requests take for slow.
    """
    had, usual = MEASURES["request_time_ms"]
    others = {name: totals[name].copy() for name in (had, usual)}
    found = np.zeros(len(totals[usual]))
    for at, sums in own.values():
        for name, values in others.items():
            values[at] -= sums[name]
        sums[usual] = agreed((first + at) // BLOCK_MOMENTS, sums[usual], 1000 * sums[had])
        found[at] += sums[usual]
    block = (first + np.arange(len(found))) // BLOCK_MOMENTS
    totals[usual] = found + agreed(block, np.maximum(others[usual], 0), 1000 * np.maximum(others[had], 0))


def _first(period: Period) -> int:
    return int(period.begin.timestamp() // MOMENT_S)
