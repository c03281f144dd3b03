"""Numbers of partitions of topics, asked from the brokers and cached for a few seconds.

Quotas need them if a request has no number: to delete a topic, or to add partitions to it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from protocol.errors import ProtocolError
from protocol.fields import NO_ID
from protocol.mutations import Topic
from protocol.topic_partitions import LONGEST_NAME, read_partitions, which_partitions
from proxy.brokers.connection import BrokerClient, BrokerConnection
from proxy.brokers.failures import describe
from proxy.runtime.faults import contained
from proxy.runtime.tasks import attempt, spawn

log = structlog.get_logger("sluice.cluster")

KEPT_MS: Final = 10_000
MOST_KEPT: Final = 10_000
WITHIN_S: Final = 5.0
"""Timeout of one lookup; topics without an answer by then stay unknown."""
_AT_ONCE: Final = 8
"""Lookups in parallel, for different counters."""
PAUSE_S: Final = 0.02
"""Pause between two lookups of one counter, each of which is a connection to a broker, and a login."""
_TOPICS_AT_ONCE: Final = 20
"""Topics in one request. Other work gets its turn between answers, each of which may have thousands of partitions."""


Then = Callable[[Mapping[Topic, int]], None]


@dataclass(slots=True)
class Lookup:
    """A look-up under way. Set ``wanted`` to False to cancel its callback."""

    topics: Sequence[Topic]
    then: Then
    wanted: bool = True


@dataclass(eq=False)
class TopicPartitions:
    """Numbers of partitions, looked up at the first of ``_clusters``; without any, nothing is known."""

    _clusters: Callable[[], Iterable[BrokerClient]]
    _clock: Callable[[], int]
    _known: dict[Topic, tuple[int, int]] = field(default_factory=dict)
    """Topic → (number of partitions, valid until)."""
    _looks: dict[object, list[Lookup]] = field(default_factory=dict)
    """Pending lookups, by counter."""
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    default_partitions: int = 1
    """Partitions of a topic created without a number, as last seen."""
    error: str | None = None
    """Why the last lookup failed; None if it succeeded."""

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        """Return the cached numbers of partitions of ``topics``."""
        now_ms = self._clock()
        found = {}
        for topic in topics:
            partitions, until_ms = self._known.get(topic, (0, now_ms))
            if now_ms < until_ms:
                found[topic] = partitions
        return found

    def forget(self, topics: Iterable[Topic]) -> None:
        """Drop ``topics`` from the cache: their state is unknown."""
        for topic in topics:
            self._known.pop(topic, None)

    def remember(self, topic: Topic, partitions: int) -> None:
        """Cache a number that a controller has just confirmed: brokers' metadata lags behind it."""
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[topic] = (partitions, self._clock() + KEPT_MS)

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Lookup | None:
        """Ask a broker; ``then`` is called with the known numbers, never at once, after an answer or a failure.

        Returns None if no broker can be asked. ``whose``, the counter, has one look-up in flight at a time.
        """
        if next(iter(self._clusters()), None) is None:
            return None
        look = Lookup(topics, then)
        if whose in self._looks:
            self._looks[whose].append(look)
        else:
            self._looks[whose] = [look]
            spawn(self._serve(whose), "ask how many partitions topics have")
        return look

    async def _serve(self, whose: object) -> None:
        looks = self._looks[whose]
        try:
            while looks:
                look = looks.pop(0)
                if not look.wanted:
                    continue
                found = self.known(look.topics)
                asked = [topic for topic in look.topics if topic not in found and _may_be(topic)]
                async with self._room:
                    await attempt("ask how many partitions topics have", lambda: self._ask(asked, found))  # noqa: B023
                if look.wanted:
                    contained("tell how many partitions topics have", look.then, found)
                await asyncio.sleep(PAUSE_S)
        finally:
            del self._looks[whose]

    async def _ask(self, topics: Sequence[Topic], found: dict[Topic, int]) -> None:
        """Add the broker's numbers for ``topics`` to ``found``; log a failure once."""

        async def question(connection: BrokerConnection) -> None:
            for by_id in (False, True):
                alike = [topic for topic in topics if (topic[1] != NO_ID) is by_id]
                for start in range(0, len(alike), _TOPICS_AT_ONCE):
                    request = which_partitions(alike[start : start + _TOPICS_AT_ONCE], by_id=by_id)
                    found.update(read_partitions(request, await connection.ask(request)))

        cluster = next(iter(self._clusters()))
        try:
            async with asyncio.timeout(WITHIN_S):
                if topics:
                    await cluster.ask(question)
        except (OSError, TimeoutError, ProtocolError) as error:
            said = describe(error)
            if said != self.error:
                log.error("partitions of topics unknown: each changed topic is charged as one", error=said)
            self.error = said
        else:
            self.error = None
        self._keep(found)

    def _keep(self, found: dict[Topic, int]) -> None:
        """Cache the found numbers, except where the cache is newer than the question."""
        known = self.known(found)
        for topic in found.keys() - known.keys():
            self.remember(topic, found[topic])
        found.update(known)


def _may_be(topic: Topic) -> bool:
    name, topic_id = topic
    return 0 < len(name) <= LONGEST_NAME or topic_id != NO_ID
