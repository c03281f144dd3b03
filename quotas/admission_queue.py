"""The queue of one counter: requests wait in it, and its clients take turns.

A throttle belongs to the counter and not to the connection that was throttled: the request of a new connection waits
behind all others of its client, so reconnecting, pipelining or sharing a name gains nothing (docs/decisions/0017).
Requests of one client go first come, first served; clients take turns (``fair_queue``), so a client with many requests
does not starve the others.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Final, Protocol

from quotas.fair_queue import FairQueue, Path, QueueEntry, numbers

KEEPS_MS: Final = 2000
"""How long the place of a request that was sent away with an empty answer is kept."""
NO_NUMBER: Final = 0
_MOST_TOLD: Final = 1000
"""The longest queue of which each place is told: to find it out takes milliseconds."""
_MOST_AT_ONCE: Final = 64
"""Turns in a row before the loop gets to other work: many requests may only find that another counter is in debt."""


class Waiter(Protocol):
    """The owner of a waiting request: in at most one queue at a time."""

    def admitted(self, now_ms: int) -> None:
        """Charge and forward the request now. Raises nothing."""
        ...

    def sent_on(self, now_ms: int) -> None:
        """Decide again whether and where to wait. Raises nothing."""
        ...

    def abort(self) -> None:
        """End: to decide again has failed."""
        ...


class Place(QueueEntry):
    """A place in a queue, for ``leave``."""

    __slots__ = ("is_dissolved", "kept_until_ms", "queue", "waiter")

    def __init__(self, queue: "AdmissionQueue", number: int, waiter: Waiter, cost: float, weight: float) -> None:
        super().__init__(number, cost, weight)
        self.queue = queue
        self.waiter = waiter
        self.kept_until_ms = 0
        self.is_dissolved = False
        """The queue was dissolved, and the waiter is not told yet."""

    def throttle_over(self, now_ms: int) -> None:
        """Make the waiter at a dissolved place decide again, unless it has left."""
        if self.is_dissolved:
            self.is_dissolved = False
            self.waiter.sent_on(now_ms)

    def abort(self) -> None:
        self.waiter.abort()


class AdmissionQueue(FairQueue):
    """The requests that wait for one counter.

    ``may_go(now)`` returns ``now`` if the counter may pass one more request, else when to ask again. ``alarm(queue,
    moment)`` makes sure that ``throttle_over`` is called at that moment; of several alarms the earliest is enough.
    """

    __slots__ = ("_alarm", "_asked_ms", "_may_go", "_serving")

    def __init__(self, may_go: Callable[[int], int], alarm: Callable[["AdmissionQueue", int], None]) -> None:
        super().__init__()
        self._may_go = may_go
        self._alarm = alarm
        self._asked_ms = 0
        self._serving = False

    def before(self, place: Place) -> list[Place] | None:
        """Return the places that have their turn before that one; None in a queue that is too long to tell."""
        if len(self) > _MOST_TOLD:
            return None
        return [each for each in takewhile(lambda each: each is not place, self.in_turn()) if isinstance(each, Place)]

    def join(
        self,
        waiter: Waiter,
        client: Path,
        cost: float,
        now_ms: int,
        *,
        weight: float = 1.0,
        kept: Place | None = None,
        number: int = NO_NUMBER,
    ) -> Place:
        """Queue a request that costs ``cost``: behind all others of the client, at the place that was ``kept``, or at
        ``number``, which it had in another queue. ``weight`` is charged to the client's turns.
        """
        if kept is not None and kept.queue is self and now_ms < kept.kept_until_ms:
            number = kept.number
        elif not number:
            number = next(numbers)
        place = Place(self, number, waiter, cost, weight)
        self.add(place, client)
        if len(self) == 1:
            self._alarm(self, max(self._may_go(now_ms), now_ms))
        return place

    def leave(self, place: Place, now_ms: int) -> None:
        """Leave the queue before the turn; the place is kept for KEEPS_MS for the next ``join``."""
        place.is_dissolved = False
        if place.parties:
            self.remove(place)
            place.kept_until_ms = now_ms + KEEPS_MS

    def serve(self, now_ms: int) -> None:
        """Admit the requests that may go, in turn, and set an alarm for the rest."""
        if self._serving:
            return  # an admitted request may bring the next: the loop below serves it
        self._serving = True
        try:
            for _ in range(_MOST_AT_ONCE):
                if not self:
                    return
                moment_ms = self._may_go(now_ms)
                if moment_ms > now_ms:
                    self._alarm(self, moment_ms)
                    return
                place = self.take()
                if isinstance(place, Place):
                    place.waiter.admitted(now_ms)
            self._alarm(self, now_ms + 1)
        finally:
            self._serving = False

    def throttle_over(self, now_ms: int) -> None:
        """Serve the queue after an alarm (``proxy.session.throttling.Throttling.alarm``)."""
        self._asked_ms = now_ms
        self.serve(now_ms)

    def abort(self) -> None:
        """Set another alarm, after serving has failed."""
        self._alarm(self, self._asked_ms + KEEPS_MS)

    def dissolve(self) -> list[Place]:
        """Empty the queue and return the places in order, for ``throttle_over``: limits, and perhaps the mapping of
        clients to counters, have changed.
        """
        places = [place for place in self.take_all() if isinstance(place, Place)]
        for place in places:
            place.is_dissolved = True
        return places
