"""Which documents are stored already: what finds the ones that come twice."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

_HOUR_MS: Final = 3_600_000
_HOURS_KEPT: Final = 6
"""In memory; of others the table is asked. A day of one proxy has 86,400 documents and more."""


class Key(NamedTuple):
    """What makes a document the same as another one."""

    instance: str
    boot: str
    seq: int


class Hour(NamedTuple):
    """An hour of UTC, as partitions have it."""

    date: str
    """YYYY-MM-DD."""
    hour: int

    @classmethod
    def of(cls, time_ms: int) -> Self:
        """Return the hour of a moment, in Unix time."""
        moment = datetime.fromtimestamp(time_ms // _HOUR_MS * 3600, UTC)
        return cls(f"{moment:%Y-%m-%d}", moment.hour)

    def before(self) -> "Hour":
        """Return the hour before it."""
        begin = datetime.strptime(f"{self.date} {self.hour}", "%Y-%m-%d %H").replace(tzinfo=UTC)
        return Hour.of(round(begin.timestamp() * 1000) - _HOUR_MS)


class Header(NamedTuple):
    """Which document it is."""

    id: int
    """Of the document, within its batch."""
    key: Key
    hour: Hour


class KnownDocuments:
    """The keys of stored documents, by hour. ``load(hour)`` asks the table."""

    def __init__(self, load: Callable[[Hour], Iterable[Key]]) -> None:
        self._load = load
        self._hours: OrderedDict[Hour, dict[tuple[str, str], set[int]]] = OrderedDict()

    def has(self, header: Header) -> bool:
        """Whether the document is stored."""
        return header.key.seq in self._of(header.hour).get(header.key[:2], ())

    def numbers(self, hour: Hour, boot: tuple[str, str]) -> Collection[int]:
        """Return the numbers of a boot (instance and boot) that are stored of an hour."""
        return self._of(hour).get(boot, ())

    def add(self, headers: Iterable[Header]) -> None:
        """Note documents that have been stored since."""
        for header in headers:
            self._of(header.hour).setdefault(header.key[:2], set()).add(header.key.seq)
        while len(self._hours) > _HOURS_KEPT:
            self._hours.popitem(last=False)

    def _of(self, hour: Hour) -> dict[tuple[str, str], set[int]]:
        found = self._hours.get(hour)
        if found is None:
            found = self._hours[hour] = {}
            for key in self._load(hour):
                found.setdefault(key[:2], set()).add(key.seq)
        self._hours.move_to_end(hour)
        return found


def duplicates(headers: Iterable[Header], known: KnownDocuments) -> list[Header]:
    """Return those that go, of documents without a fault: all but the first of a key, all of a key that is stored."""
    first: set[Key] = set()
    found = []
    for header in headers:
        if header.key in first or known.has(header):
            found.append(header)
        first.add(header.key)
    return found
