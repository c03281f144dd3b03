"""Selects the entities that have series by name; all others are summed up as ``other``, and no series ever decreases.

First come, first shown; among simultaneous newcomers the one with the highest demand. A named entity keeps its series
until it is gone *and* a newcomer needs the slot. Privileged entities may displace others, and only privileged ones may
displace them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from quotas.counted import FOLDED

SeriesT = TypeVar("SeriesT")
NamesT = TypeVar("NamesT", bound=tuple[str, ...])


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
        self._seen: dict[NamesT, tuple[bool, int]] = {}
        """Entity → (privileged, number of the update) when it was last seen."""
        self._others: dict[NamesT, SeriesT] = {}
        self.folded = 0
        """Entities in the last update that are part of ``other``."""

    def assign(self, demand: Mapping[NamesT, Any], first: AbstractSet[NamesT] = frozenset()) -> None:
        """Assign slots to the current entities, as far as available: to those in ``first``, then by demand."""
        self._updates += 1
        newcomers = [names for names in demand if names not in self._named and names != self._other_of(names)]
        newcomers.sort(key=lambda names: (names in first, demand[names]), reverse=True)
        for names in self._named.keys() & demand.keys():
            self._seen[names] = (names in first, self._updates)
        urgent = sum(names in first for names in newcomers)
        for names in newcomers[: self._free(len(newcomers), urgent)]:
            self._named[names] = self._make()
            self._seen[names] = (names in first, self._updates)
        self.folded = len(demand.keys() - self._named.keys())

    def _free(self, wanted: int, urgent: int) -> int:
        """Free up to ``wanted`` slots of entities that are gone, longest gone first, and up to ``urgent`` of
        unprivileged ones, latest first; return the number of free slots.
        """
        gone = sorted((*seen, names) for names, seen in self._seen.items() if seen[1] != self._updates)
        self._clear(self._missing(wanted), (names for is_first, _, names in gone if not is_first))
        self._clear(self._missing(urgent), [names for names in reversed(self._named) if not self._seen[names][0]])
        self._clear(self._missing(urgent), (names for is_first, _, names in gone if is_first))
        return self._most - len(self._named)

    def _missing(self, wanted: int) -> int:
        return max(wanted - self._most + len(self._named), 0)

    def _clear(self, number: int, entities: Iterable[NamesT]) -> None:
        for names in islice(entities, number):
            del self._named[names], self._seen[names]

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
