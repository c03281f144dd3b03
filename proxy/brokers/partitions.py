"""Who knows how many partitions topics have: as the session sees it, which asks nobody itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from protocol.mutations import Topic

Then = Callable[[Mapping[Topic, int]], None]


class Look(Protocol):
    """What was asked and is not answered yet: set ``wanted`` to False to hear nothing of it."""

    wanted: bool


class Partitions(Protocol):
    """``proxy.brokers.topic_partitions``."""

    default_partitions: int
    """Of a topic that is created without a number."""

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        """Return of ``topics`` those that need no question."""
        ...

    def forget(self, topics: Iterable[Topic]) -> None:
        """Believe nothing of ``topics`` any more."""
        ...

    def note(self, topic: Topic, partitions: int) -> None:
        """Believe for a while that ``topic`` has so many: a controller has just said so."""
        ...

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Look | None:
        """Ask, and call ``then`` later with what is known then. None where nobody can be asked."""
        ...


class NoPartitions:
    """Where no broker can be asked."""

    def __init__(self) -> None:
        self.default_partitions = 1

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:  # noqa: ARG002  the face of Partitions
        return {}

    def forget(self, topics: Iterable[Topic]) -> None:
        """Nothing is believed."""

    def note(self, topic: Topic, partitions: int) -> None:
        """The same."""

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Look | None:  # noqa: ARG002  likewise
        return None
