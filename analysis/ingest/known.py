"""Documents that are stored already: which come twice, and which numbers of a proxy's run are missing."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
_HOURS_KEPT: Final = 6
"""In memory; of others the table is asked. A day of one proxy has 86,400 documents and more."""


class Key(NamedTuple):
    """A document is the same as another one if these are."""

    instance: str
    boot: str
    seq: int


class Document(NamedTuple):
    """A document that was read."""

    key: Key
    hour: int
    """Since 1970."""
    dropped: int
    """How many its proxy had dropped so far."""


class Boot(NamedTuple):
    """The numbers of one run of a proxy that are stored."""

    first: int = 0
    last: int = -1
    documents: int = 0
    dropped: int = 0
    """How many it said that it had dropped."""

    @property
    def missing(self) -> int:
        """How many numbers between are stored nowhere; numbers begin at 0."""
        return self.last - self.first + 1 - self.documents


BootName = tuple[str, str]
"""Instance and boot."""


class KnownDocuments:
    """What is stored: keys by hour, and numbers by boot. ``load_hour`` and ``load_boots`` ask the table."""

    def __init__(
        self,
        load_hour: Callable[[int], Iterable[Key]],
        load_boots: Callable[[Collection[BootName]], Mapping[BootName, Boot]],
    ) -> None:
        self._load_hour = load_hour
        self._load_boots = load_boots
        self._hours: OrderedDict[int, set[Key]] = OrderedDict()
        self._boots: dict[BootName, Boot] = {}

    def are_new(self, documents: Iterable[Document]) -> Iterator[bool]:
        """Yield for each document whether it is neither stored nor the same as one before it."""
        came: set[Key] = set()
        for each in documents:
            yield each.key not in came and each.key not in self._of(each.hour)
            came.add(each.key)

    def begun(self, documents: Collection[Document]) -> set[Key]:
        """Return the first document of each boot of which nothing is stored."""
        self._ask({each.key[:2] for each in documents})
        firsts: dict[BootName, Key] = {}
        for each in documents:
            if not self._boots[each.key[:2]].documents:
                firsts[each.key[:2]] = min(each.key, firsts.get(each.key[:2], each.key))
        return set(firsts.values())

    def add(self, documents: Collection[Document]) -> tuple[int, int]:
        """Note documents that were stored.

        Return how many more are missing (below 0: came, after they had been told as missing), and how many more
        their proxies say that they dropped.
        """
        self._ask({each.key[:2] for each in documents})
        missing = dropped = 0
        for each in documents:
            self._of(each.hour).add(each.key)
            before = self._boots[each.key[:2]]
            after = Boot(
                before.first,
                max(before.last, each.key.seq),
                before.documents + (each.key.seq >= before.first),
                max(before.dropped, each.dropped),
            )
            missing += after.missing - before.missing
            dropped += after.dropped - before.dropped
            self._boots[each.key[:2]] = after
        while len(self._hours) > _HOURS_KEPT:
            self._hours.popitem(last=False)
        return missing, dropped

    def _ask(self, boots: set[BootName]) -> None:
        if unknown := boots - self._boots.keys():
            stored = self._load_boots(unknown)
            self._boots |= {boot: stored.get(boot, Boot()) for boot in unknown}

    def _of(self, hour: int) -> set[Key]:
        if hour not in self._hours:
            self._hours[hour] = set(self._load_hour(hour))
        self._hours.move_to_end(hour)
        return self._hours[hour]
