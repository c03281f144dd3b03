"""Tells new documents from stored ones, and counts the missing numbers of a proxy's boot."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
_HOURS_KEPT: Final = 6
"""The hours whose keys are in memory: a day of a proxy has 86,400 documents and more."""


class Key(NamedTuple):
    """The identity of a document."""

    instance: str
    boot: str
    seq: int


class Document(NamedTuple):
    """The identity, hour and drop count of a document."""

    key: Key
    hour: int
    """Since 1970."""
    dropped: int
    """The proxy's count of dropped documents."""


class Boot(NamedTuple):
    """The stored documents of a boot."""

    first: int = 0
    last: int = -1
    documents: int = 0
    dropped: int = 0
    """The latest count of dropped documents."""

    @property
    def missing(self) -> int:
        """The count of numbers from ``first`` to ``last`` that are not stored."""
        return self.last - self.first + 1 - self.documents


BootName = tuple[str, str]
"""Instance and boot."""


class KnownDocuments:
    """A cache of stored documents: keys by hour, numbers by boot. ``load_hour`` and ``load_boots`` read the table."""

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
        """Yield for each document whether it is neither stored nor a duplicate of an earlier one."""
        came: set[Key] = set()
        for each in documents:
            yield each.key not in came and each.key not in self._of(each.hour)
            came.add(each.key)

    def begun(self, documents: Collection[Document]) -> set[Key]:
        """Return the first document of each boot that has no stored ones."""
        self._ask({each.key[:2] for each in documents})
        firsts: dict[BootName, Key] = {}
        for each in documents:
            if not self._boots[each.key[:2]].documents:
                firsts[each.key[:2]] = min(each.key, firsts.get(each.key[:2], each.key))
        return set(firsts.values())

    def add(self, documents: Collection[Document]) -> tuple[int, int]:
        """Add stored documents. Return by how many the missing ones (below 0: late ones came) and dropped ones grew."""
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
