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
Who = TypeVar("Who", bound=tuple[str, ...])


class Names(NamedTuple):
    """An entity as its labels say it; what is not distinguished by is empty."""

    user: str
    client_id: str


OTHER: Final = Names(FOLDED, FOLDED)
"""Everybody without a place. A client that is called so is counted here too, so no series is ever there twice."""


class Places(Generic[Who, Kept]):
    """At most ``most`` entities, each with what ``make`` returned for it, and more for all others: one for each that
    ``other_of`` returns.
    """

    def __init__(self, most: int, make: Callable[[], Kept], other_of: Callable[[Who], Who]) -> None:
        self._most = most
        self._make = make
        self._other_of = other_of
        self._updates = 0
        self._places: dict[Who, Kept] = {}
        self._seen: dict[Who, tuple[bool, int]] = {}
        """Whether it went first when it was there last, and which update that was."""
        self._others: dict[Who, Kept] = {}
        self.folded = 0
        """Entities that were there last, and are summed up as ``other``."""

    def seat(self, demand: Mapping[Who, Any], first: AbstractSet[Who] = frozenset()) -> None:
        """Give places to those that are there now, as far as there are any: to ``first``, and then by demand."""
        self._updates += 1
        newcomers = [names for names in demand if names not in self._places and names != self._other_of(names)]
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

    def _clear(self, number: int, places: Iterable[Who]) -> None:
        for names in islice(places, number):
            del self._places[names], self._seen[names]

    def __getitem__(self, names: Who) -> Kept:
        """Return what is kept of an entity, by name or as a part of its ``other``."""
        kept = self._places.get(names)
        if kept is not None:
            return kept
        other = self._other_of(names)
        if other not in self._others:
            self._others[other] = self._make()
        return self._others[other]

    def __iter__(self) -> Iterator[tuple[Who, Kept]]:
        """Every place; those of others come last, once there was need of them."""
        yield from self._places.items()
        yield from self._others.items()
