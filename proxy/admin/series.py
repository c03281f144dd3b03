"""Which entities have series by name, within ``metrics.max_series``; all others are summed up as ``other``, and no
series ever decreases.

First come, first shown; among simultaneous newcomers the one with the highest demand. A named entity keeps its series
until it is gone *and* a newcomer needs the slot, or until a newcomer of a higher rank does.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, Final, Generic, NamedTuple, TypeVar

from proxy.usage.latencies import BOUNDS_MS
from quotas.names import FOLDED

HIGHEST: Final = 2

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


@dataclass(eq=False)
class NamedSeries(Generic[NamesT, SeriesT]):
    """At most ``_most`` entities with a series by name, made by ``_make``; all others share one per ``_other_of``."""

    _most: int
    _make: Callable[[], SeriesT]
    _other_of: Callable[[NamesT], NamesT]
    _updates: int = 0
    _named: dict[NamesT, SeriesT] = field(default_factory=dict)
    _seen: dict[NamesT, tuple[int, int]] = field(default_factory=dict)
    """Entity → (rank, number of the update) when it was last seen."""
    _others: dict[NamesT, SeriesT] = field(default_factory=dict)
    folded: int = 0
    """Entities in the last update that are part of ``other``."""

    def assign(self, demand: Mapping[NamesT, tuple[int, *tuple[float, ...]]]) -> None:
        """Assign slots to the current entities, as far as available: by rank (0 to HIGHEST), then by the rest."""
        self._updates += 1
        for names in self._named.keys() & demand.keys():
            self._seen[names] = (demand[names][0], self._updates)
        strengths = dict[NamesT, tuple[int, int, Any]]()
        for number, names in enumerate(self._named):
            rank, seen = self._seen[names]
            if seen == self._updates:
                strengths[names] = (rank, 2, -number)
            else:  # it is gone, and gives way to all, those of the highest rank to their equals; the longest gone first
                strengths[names] = (rank if rank == HIGHEST else -1, 0, (rank, seen))
        for names in demand:
            if names not in self._named and names != self._other_of(names):
                strengths[names] = (demand[names][0], 1, demand[names])
        strongest = nlargest(self._most, strengths, key=strengths.__getitem__)
        for names in self._named.keys() - strongest:
            del self._named[names], self._seen[names]
        for names in strongest:
            if names not in self._named:
                self._named[names] = self._make()
                self._seen[names] = (demand[names][0], self._updates)
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
