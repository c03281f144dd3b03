"""Who is shown by name, and who is summed up as ``other``: bounded, and no series ever goes backwards.

First come, first shown; of those that come together the one with the highest demand. A place is kept, with all that is
counted there, until its entity is gone *and* a newcomer needs the place. Some go first: they take places of others, and
nobody but others that go first takes theirs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from quotas.counted import FOLDED

Kept = TypeVar("Kept")


class Names(NamedTuple):
    """An entity as its labels say it; what is not distinguished by is empty."""

    user: str
    client_id: str


OTHER: Final = Names(FOLDED, FOLDED)
"""Everybody without a place. A client that is called so is counted here too, so no series is ever there twice."""


class Places(Generic[Kept]):
    """At most ``most`` entities, each with what ``make`` returned for it, and one more for all others."""

    def __init__(self, most: int, make: Callable[[], Kept]) -> None:
        self._most = most
        self._make = make
        self._updates = 0
        self._places: dict[Names, Kept] = {}
        self._seen: dict[Names, tuple[bool, int]] = {}
        """Whether it went first when it was there last, and which update that was."""
        self._other = make()
        self.folded = 0
        """Entities that were there last, and are summed up as ``other``."""

    def seat(self, demand: Mapping[Names, Any], first: AbstractSet[Names] = frozenset()) -> None:
        """Give places to those that are there now, as far as there are any: to ``first``, and then by demand."""
        self._updates += 1
        newcomers = [names for names in demand if names not in self._places and names != OTHER]
        newcomers.sort(key=lambda names: (names in first, demand[names]), reverse=True)
        for names in self._places.keys() & demand.keys():
            self._seen[names] = (names in first, self._updates)
        urgent = sum(names in first for names in newcomers)
        for names in newcomers[: self._vacate(len(newcomers), urgent)]:
            self._places[names] = self._make()
            self._seen[names] = (names in first, self._updates)
        self.folded = len(demand.keys() - self._places.keys())

    def _vacate(self, wanted: int, urgent: int) -> int:
        """Free up to ``wanted`` places of entities that are gone, longest gone first, and up to ``urgent`` of others,
        last come first; return how many are free.
        """
        gone = sorted((*seen, names) for names, seen in self._seen.items() if seen[1] != self._updates)
        self._clear(self._missing(wanted), (names for is_first, _, names in gone if not is_first))
        self._clear(self._missing(urgent), [names for names in reversed(self._places) if not self._seen[names][0]])
        self._clear(self._missing(urgent), (names for is_first, _, names in gone if is_first))
        return self._most - len(self._places)

    def _missing(self, wanted: int) -> int:
        return max(wanted - self._most + len(self._places), 0)

    def _clear(self, number: int, places: Iterable[Names]) -> None:
        for names in islice(places, number):
            del self._places[names], self._seen[names]

    def __getitem__(self, names: Names) -> Kept:
        """Return what is kept of an entity, by name or as a part of ``other``."""
        return self._places.get(names, self._other)

    def __iter__(self) -> Iterator[tuple[Names, Kept]]:
        """Every place; ``other`` comes last."""
        yield from self._places.items()
        yield OTHER, self._other
