"""The session's view of partition counts of topics: an interface, because a session sends no requests of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.mutations import Topic

Then = Callable[[Mapping[Topic, int]], None]


@dataclass(slots=True)
class Lookup:
    """A look-up under way. Set ``wanted`` to False to cancel its callback."""

    topics: Sequence[Topic]
    then: Then
    wanted: bool = True


class Partitions(Protocol):
    """``proxy.brokers.topic_partitions``."""

    default_partitions: int
    """The number of partitions of a topic that is created without one."""

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        """Return the cached numbers of partitions of ``topics``."""
        ...

    def forget(self, topics: Iterable[Topic]) -> None:
        """Drop ``topics`` from the cache: their state is unknown."""
        ...

    def remember(self, topic: Topic, partitions: int) -> None:
        """Cache a number that a controller has just confirmed: brokers' metadata lags behind it."""
        ...

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Lookup | None:
        """Ask a broker; ``then`` is called with the known numbers, never at once, after an answer or a failure.

        Returns None if no broker can be asked. ``whose`` identifies the counter: it has one look-up in flight at a
        time.
        """
        ...
