"""How many partitions topics have, as the brokers say when they are asked; kept for a few seconds.

Quotas need that where a request does not say it: who deletes a topic, or adds to it, names no number.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import structlog

from protocol.errors import ProtocolError
from protocol.fields import NO_ID
from protocol.mutations import Topic
from protocol.topic_partitions import LONGEST_NAME, read_partitions, which_partitions
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.failures import describe
from proxy.runtime.faults import contained
from proxy.runtime.tasks import attempt, spawn

T = TypeVar("T")

log = structlog.get_logger("sluice.cluster")

KEPT_MS: Final = 10_000
MOST_KEPT: Final = 10_000
WITHIN_S: Final = 5.0
"""How long one look may take. What is not known by then stays unknown."""
_AT_ONCE: Final = 8
"""Looks on behalf of different counters."""
PAUSE_S: Final = 0.02
"""Between two looks of one counter, each of which is a connection to a broker, and a login."""
_TOPICS_AT_ONCE: Final = 20
"""Of one question. Other work has its turn between the answers, each of which may have thousands of partitions."""

Then = Callable[[Mapping[Topic, int]], None]


class Asks(Protocol):
    """Puts a question to a broker: ``proxy.brokers.cluster.Cluster``."""

    async def ask(self, question: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Raises OSError where no broker answers."""
        ...


class Look:
    """One look, to give it up by."""

    __slots__ = ("then", "topics", "wanted")

    def __init__(self, topics: Sequence[Topic], then: Then) -> None:
        self.topics = topics
        self.then = then
        self.wanted = True


class TopicPartitions:
    """``clusters`` returns what may be asked; the first is. Nothing is known where there is none."""

    def __init__(self, clusters: Callable[[], Iterable[Asks]], clock: Callable[[], int]) -> None:
        self._clusters = clusters
        self._clock = clock
        self._known: dict[Topic, tuple[int, int]] = {}
        """How many, and until when that is believed."""
        self._looks: dict[object, list[Look]] = {}
        """Under way and to come, by whose they are."""
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.default_partitions = 1
        """Of a topic that is created without a number, as seen last."""
        self.error: str | None = None
        """Why the last question failed; None when it did not."""

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        """Return of ``topics`` those that need no question."""
        now_ms = self._clock()
        found = {}
        for topic in topics:
            partitions, until_ms = self._known.get(topic, (0, now_ms))
            if now_ms < until_ms:
                found[topic] = partitions
        return found

    def forget(self, topics: Iterable[Topic]) -> None:
        """Believe nothing of ``topics`` any more: nobody knows what has become of them."""
        for topic in topics:
            self._known.pop(topic, None)

    def note(self, topic: Topic, partitions: int) -> None:
        """Believe that ``topic`` has so many: a controller has just said so, and brokers' metadata lags behind it."""
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[topic] = (partitions, self._clock() + KEPT_MS)

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Look | None:
        """Ask, and call ``then`` with what is known of ``topics`` when there is an answer, or none can be had.

        None where nobody can be asked; ``then`` is not called at once. ``whose`` tells apart who is charged: of each,
        one look is under way at a time.
        """
        if not any(True for _ in self._clusters()):
            return None
        look = Look(topics, then)
        waiting = self._looks.get(whose)
        if waiting is not None:
            waiting.append(look)
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
        """Put what a broker says of ``topics`` into ``found``; why nothing is said is logged once."""

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
            said = describe(error) if isinstance(error, OSError | TimeoutError) else str(error)
            if said != self.error:
                log.error("partitions of topics unknown: each changed topic is charged as one", error=said)
            self.error = said
        else:
            self.error = None
        self._keep(found)

    def _keep(self, found: dict[Topic, int]) -> None:
        """Keep what was found; but what is known by now was noted after the question, and is newer."""
        known = self.known(found)
        for topic in found.keys() - known.keys():
            self.note(topic, found[topic])
        found.update(known)


def _may_be(topic: Topic) -> bool:
    """Whether a broker may have a topic of that name, or id."""
    name, topic_id = topic
    return 0 < len(name) <= LONGEST_NAME or topic_id != NO_ID
