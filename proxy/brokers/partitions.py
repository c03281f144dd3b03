"""The session's view of partition counts of topics: an interface, because a session sends no requests of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from protocol.mutations import Topic

Then = Callable[[Mapping[Topic, int]], None]


class Look(Protocol):
    """A look-up under way. Set ``wanted`` to False to cancel its callback."""

    wanted: bool


class Partitions(Protocol):
    """``proxy.brokers.topic_partitions``."""

    default_partitions: int
    """The number of partitions of a topic that is created without one."""

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        """Return the partition counts that are cached, of ``topics``."""
        ...

    def forget(self, topics: Iterable[Topic]) -> None:
        """Drop ``topics`` from the cache."""
        ...

    def remember(self, topic: Topic, partitions: int) -> None:
        """Cache a partition count from a controller's answer."""
        ...

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Look | None:
        """Ask a broker and call ``then`` later with the counts it knows. Returns None if no broker can be asked."""
        ...


class NoPartitions:
    """A cache that is always empty, for sessions without a broker to ask."""

    def __init__(self) -> None:
        self.default_partitions = 1

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:  # noqa: ARG002  the face of Partitions
        return {}

    def forget(self, topics: Iterable[Topic]) -> None:
        """Do nothing."""

    def remember(self, topic: Topic, partitions: int) -> None:
        """Do nothing."""

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Look | None:  # noqa: ARG002  likewise
        return None
