"""Which entities have series by name, within ``metrics.max_series``; all others are summed up as ``other``, and no
series ever decreases.

First come, first shown; among simultaneous newcomers the one with the highest demand. A named entity keeps its series
until it is gone *and* a newcomer needs the slot, or until a newcomer of a higher rank does.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from proxy.usage.latencies import BOUNDS_MS
from quotas.names import FOLDED

HIGHEST: Final = 2
"""The highest rank."""

_FIXED: Final = 2000
"""All other series: of the program, its listeners, APIs and errors, and those of ``other``."""
_PER_COUNTER: Final = 10
"""Limit, limit in shadow, usage, ratio, tokens, two for throttles, two for those in shadow, charges."""
_PER_CLIENT: Final = 8
_PER_LATENCY: Final = 2 * (len(BOUNDS_MS) + 3)
"""The broker's and the proxy's histogram: buckets, +Inf, sum and count."""
_PER_ADDRESS: Final = 2

SeriesT = TypeVar("SeriesT")
NamesT = TypeVar("NamesT", bound=tuple[object, ...])


class SeriesLimits(NamedTuple):
    """How many of each have series of their own."""

    counters: int
    """For quotas: by entity, kind and broker."""
    clients: int
    latencies: int
    """By API and broker."""
    addresses: int
    brokers: int


def divide(max_series: int) -> SeriesLimits:
    """Return limits with which a page has at most ``max_series`` series, in the worst case of each family."""
    series = max(max_series - _FIXED, 0)
    return SeriesLimits(
        counters=series * 54 // 100 // _PER_COUNTER,
        clients=series * 20 // 100 // _PER_CLIENT,
        latencies=series * 20 // 100 // _PER_LATENCY,
        addresses=series * 4 // 100 // _PER_ADDRESS,
        brokers=series * 2 // 100,
    )


class Names(NamedTuple):
    """The labels of an entity; unused ones are empty."""

    user: str
    client_id: str


OTHER: Final = Names(FOLDED, FOLDED)
"""All entities without a slot. A client with this name is counted here too, so no series is duplicated."""


class NamedSeries(Generic[NamesT, SeriesT]):
    """At most ``most`` entities with a series by name, created by ``make``; all others share one per ``other_of``."""

    def __init__(self, most: int, make: Callable[[], SeriesT], other_of: Callable[[NamesT], NamesT]) -> None:
        self._most = most
        self._make = make
        self._other_of = other_of
        self._updates = 0
        self._named: dict[NamesT, SeriesT] = {}
        self._seen: dict[NamesT, tuple[int, int]] = {}
        """Entity → (rank, number of the update) when it was last seen."""
        self._others: dict[NamesT, SeriesT] = {}
        self.folded = 0
        """Entities in the last update that are part of ``other``."""

    def assign(self, demand: Mapping[NamesT, Any], ranks: Mapping[NamesT, int] = MappingProxyType({})) -> None:
        """Assign slots to the current entities, as far as available: by rank (0 to HIGHEST), then by demand."""
        self._updates += 1
        for names in self._named.keys() & demand.keys():
            self._seen[names] = (ranks.get(names, 0), self._updates)
        strengths = dict[NamesT, tuple[int, int, Any]]()
        for number, names in enumerate(self._named):
            rank, seen = self._seen[names]
            if seen == self._updates:
                strengths[names] = (rank, 2, -number)
            else:  # it is gone, and gives way to all, those of the highest rank to their equals; the longest gone first
                strengths[names] = (rank if rank == HIGHEST else -1, 0, (rank, seen))
        for names in demand:
            if names not in self._named and names != self._other_of(names):
                strengths[names] = (ranks.get(names, 0), 1, demand[names])
        strongest = nlargest(self._most, strengths, key=strengths.__getitem__)
        for names in self._named.keys() - strongest:
            del self._named[names], self._seen[names]
        for names in strongest:
            if names not in self._named:
                self._named[names] = self._make()
                self._seen[names] = (ranks.get(names, 0), self._updates)
        self.folded = len(demand.keys() - self._named.keys())

    def __getitem__(self, names: NamesT) -> SeriesT:
        """Return an entity's series, its own or its ``other``."""
        series = self._named.get(names)
        if series is not None:
            return series
        other = self._other_of(names)
        if other not in self._others:
            self._others[other] = self._make()
        return self._others[other]

    def __iter__(self) -> Iterator[tuple[NamesT, SeriesT]]:
        """Yield all named series; those of ``other`` come last, if they were ever used."""
        yield from self._named.items()
        yield from self._others.items()
