"""The line of one counter: its requests wait there, and its clients take turns.

A throttle belongs to the counter and not to the connection that met it: the request of a new connection waits behind
all others of its client, so nobody gains by reconnecting, pipelining or sharing a name (docs/decisions/0017). Requests
of one client go first come, first served; clients take turns (``fair_queue``), so one with many shuts out no other.
"""

from collections.abc import Callable
from typing import Final, Protocol

from quotas.fair_queue import Entry, FairQueue, Path, numbers

KEEPS_MS: Final = 2000
"""How long a place is kept for one who was sent away with nothing, and is to come back for it."""
NO_NUMBER: Final = 0
_MOST_AT_ONCE: Final = 64
"""Turns in a row, before the loop gets to other work: many requests may only find that another counter is in debt."""


class Waiter(Protocol):
    """One whose request waits: at most one place in one line at a time."""

    def admitted(self, now_ms: int) -> None:
        """Take the turn: the request is to be charged and forwarded now. Raises nothing."""
        ...

    def sent_on(self, now_ms: int) -> None:
        """Ask again whether to wait, and where. Raises nothing."""
        ...


class Place(Entry):
    """A place in a line, to leave it by."""

    __slots__ = ("is_dissolved", "kept_until_ms", "line", "waiter")

    def __init__(self, line: "Line", number: int, waiter: Waiter, cost: float, weight: float) -> None:
        super().__init__(number, cost, weight)
        self.line = line
        self.waiter = waiter
        self.kept_until_ms = 0
        self.is_dissolved = False
        """It is in the line no longer, and who waits is to be told so."""


class Line:
    """The requests that wait for one counter.

    ``may_go(now)`` returns ``now`` where the counter lets one more go, else when to ask again. ``alarm(line, moment)``
    sees to it that ``throttle_over`` is called at that moment; the earliest one asked for is enough.
    """

    __slots__ = ("_alarm", "_asked_ms", "_may_go", "_queue", "_serving")

    def __init__(self, may_go: Callable[[int], int], alarm: Callable[["Line", int], None]) -> None:
        self._may_go = may_go
        self._alarm = alarm
        self._queue = FairQueue()
        self._asked_ms = 0
        self._serving = False

    def __len__(self) -> int:
        return len(self._queue)

    def __bool__(self) -> bool:
        return len(self._queue) > 0

    def cost_before(self, client: Path) -> float:
        """Estimate what is charged before the turn of a request of ``client`` that would come now."""
        return self._queue.cost_before(client)

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
        """Wait, to be charged ``cost``: behind all others of the client, at the place that was ``kept``, or at that of
        ``number``, which the same request had in another line. ``weight`` counts against the client's turns.
        """
        if kept is not None and kept.line is self and now_ms < kept.kept_until_ms:
            number = kept.number
        elif not number:
            number = next(numbers)
        place = Place(self, number, waiter, cost, weight)
        self._queue.add(place, client)
        if len(self._queue) == 1:
            self._alarm(self, max(self._may_go(now_ms), now_ms))
        return place

    def owe(self, client: Path, weight: float) -> None:
        """Count ``weight`` against the client's turns besides: more came of one than was counted."""
        self._queue.owe(client, weight)

    def leave(self, place: Place, now_ms: int, *, keep: bool = False) -> None:
        """Give a place up before its turn; with ``keep`` it is there for a while for the next ``join``."""
        place.is_dissolved = False
        if place.parties:
            self._queue.remove(place)
            place.kept_until_ms = now_ms + KEEPS_MS if keep else 0

    def serve(self, now_ms: int) -> None:
        """Let go whoever may, in turn; ask to be called again for those who may not yet."""
        if self._serving:
            return  # one who goes may bring the next: the loop below sees to him
        self._serving = True
        try:
            for _ in range(_MOST_AT_ONCE):
                if not self._queue:
                    return
                moment_ms = self._may_go(now_ms)
                if moment_ms > now_ms:
                    self._alarm(self, moment_ms)
                    return
                place = self._queue.take()
                if isinstance(place, Place):
                    place.waiter.admitted(now_ms)
            self._alarm(self, now_ms + 1)
        finally:
            self._serving = False

    def throttle_over(self, now_ms: int) -> None:
        """Look again: the moment has come that was asked for (``proxy.session.throttling.Muted``)."""
        self._asked_ms = now_ms
        self.serve(now_ms)

    def abort(self) -> None:
        """Look again in a while: to look has failed."""
        self._alarm(self, self._asked_ms + KEEPS_MS)

    def dissolve(self) -> list[Place]:
        """Take everybody out and return their places, in order, each for ``send_on``: the limits have changed, and
        perhaps whose counter is whose.
        """
        places = [place for place in self._queue.take_all() if isinstance(place, Place)]
        for place in places:
            place.is_dissolved = True
        return places

    def send_on(self, place: Place, now_ms: int) -> None:
        """Send who has waited at a dissolved place, and has not left it since, to ask again."""
        if place.is_dissolved:
            place.is_dissolved = False
            place.waiter.sent_on(now_ms)
