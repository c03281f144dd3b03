"""Who goes next under one counter: its requests wait in one line, first come, first served.

A throttle belongs to the counter and not to the connection that met it: a new connection's request stands behind those
of all others, so that nobody gains by reconnecting, by pipelining or by sharing a name (docs/decisions/0017).
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

KEEPS_MS: Final = 2000
"""How long a place is kept for one who was sent away with nothing, and is to come back for it."""
HOLDS_MS: Final = 10_000
"""The longest that a line waits for one who has had his turn in it, and could not take it because of another line."""
NO_NUMBER: Final = 0

_numbers: Final = count(1)
"""Of places in all lines together: who has to pass several counters stands in each by when he came to the first."""


class Waiter(Protocol):
    """One whose request waits: at most one place in one line at a time."""

    def admitted(self, now_ms: int) -> None:
        """Take the turn: the request is to be charged and forwarded now. Raises nothing."""
        ...

    def sent_on(self, now_ms: int) -> None:
        """Ask again whether to wait, and where: this line is no longer. Raises nothing."""
        ...


class Place:
    """A place in a line, to leave it by."""

    __slots__ = ("cost", "kept_until_ms", "line", "number", "waiter")

    def __init__(self, line: "Line", number: int, waiter: Waiter, cost: float) -> None:
        self.line = line
        self.number = number
        self.cost = cost
        self.waiter: Waiter | None = waiter
        """None once it has had its turn or has left."""
        self.kept_until_ms = 0

    def __lt__(self, other: "Place") -> bool:
        return self.number < other.number


class Line:
    """The requests that wait for one counter.

    ``may_go(now)`` returns ``now`` where the counter lets one more go, else when to ask again. ``alarm(line, moment)``
    sees to it that ``throttle_over`` is called at that moment; the earliest one asked for is enough.
    """

    __slots__ = (
        "_alarm",
        "_asked_ms",
        "_heap",
        "_held_for",
        "_held_until_ms",
        "_may_go",
        "_serving",
        "_waiting",
        "cost",
    )

    def __init__(self, may_go: Callable[[int], int], alarm: Callable[["Line", int], None]) -> None:
        self._may_go = may_go
        self._alarm = alarm
        self._heap: list[Place] = []
        self._held_for = NO_NUMBER
        self._held_until_ms = 0
        self._asked_ms = 0
        self._waiting = 0
        self._serving = False
        self.cost = 0.0
        """What those who wait are going to be charged, as far as that is known."""

    def __len__(self) -> int:
        return self._waiting

    def __bool__(self) -> bool:
        """Somebody waits, or is waited for."""
        return self._waiting > 0 or self._held_for != NO_NUMBER

    def join(
        self, waiter: Waiter, cost: float, now_ms: int, kept: Place | None = None, number: int = NO_NUMBER
    ) -> Place:
        """Wait, to be charged ``cost``: behind all others, at the place that was ``kept``, or at that of ``number``,
        which the same request had in another line.
        """
        if kept is not None and kept.line is self and now_ms < kept.kept_until_ms:
            number = kept.number
        elif not number:
            number = next(_numbers)
        place = Place(self, number, waiter, cost)
        heappush(self._heap, place)
        self._waiting += 1
        self.cost += cost
        if self._waiting == 1:
            self._alarm(self, max(self._may_go(now_ms), now_ms))
        return place

    def is_before(self, number: int, now_ms: int) -> bool:
        """Whether one of that number (NO_NUMBER: one who has just come) has to let others go first."""
        head = self._head()
        if head is not None and (not number or head.number < number):
            return True
        return self._is_held(number, now_ms)

    def hold(self, number: int, now_ms: int) -> None:
        """Let nobody go who came later than ``number``, until that one has gone or HOLDS_MS are over."""
        if not self._is_held(number, now_ms):
            self._held_for, self._held_until_ms = number, now_ms + HOLDS_MS

    def release(self, number: int, now_ms: int) -> None:
        """Wait for ``number`` no longer."""
        if self._held_for == number:
            self._held_for = NO_NUMBER
            if self._waiting:
                self._alarm(self, now_ms)

    def _is_held(self, number: int, now_ms: int) -> bool:
        held_for = self._held_for
        return bool(held_for) and now_ms < self._held_until_ms and (not number or held_for < number)

    def leave(self, place: Place, now_ms: int, *, keep: bool = False) -> None:
        """Give a place up before its turn; with ``keep`` it is there for a while for the next ``join``."""
        if place.waiter is None:
            return
        self._out(place)
        place.kept_until_ms = now_ms + KEEPS_MS if keep else 0
        if len(self._heap) > 2 * self._waiting + 8:
            self._heap = [each for each in self._heap if each.waiter is not None]
            heapify(self._heap)

    def serve(self, now_ms: int) -> None:
        """Let go whoever may, in order; ask to be called again for those who may not yet."""
        if self._serving:
            return  # one who goes may bring the next: the loop below sees to him
        self._serving = True
        try:
            while (place := self._head()) is not None:
                moment_ms = self._may_go(now_ms)
                if self._held_for and self._is_held(place.number, now_ms):
                    moment_ms = max(moment_ms, self._held_until_ms)
                if moment_ms > now_ms:
                    self._alarm(self, moment_ms)
                    return
                heappop(self._heap)
                waiter = self._out(place)
                if waiter is not None:
                    waiter.admitted(now_ms)
        finally:
            self._serving = False

    def throttle_over(self, now_ms: int) -> None:
        """Look again: the moment has come that was asked for (``proxy.session.throttling.Muted``)."""
        self._asked_ms = now_ms
        self.serve(now_ms)

    def abort(self) -> None:
        """Look again in a while: to look has failed."""
        self._alarm(self, self._asked_ms + KEEPS_MS)

    def dissolve(self, now_ms: int) -> None:
        """Send everybody to ask again, in order: the limits have changed, and perhaps whose counter is whose."""
        waiting = sorted(self._heap)
        self._heap = []
        for place in waiting:
            if (waiter := self._out(place)) is not None:
                waiter.sent_on(now_ms)

    def _out(self, place: Place) -> Waiter | None:
        waiter, place.waiter = place.waiter, None
        if waiter is not None:
            self._waiting -= 1
            self.cost = self.cost - place.cost if self._waiting else 0.0
        return waiter

    def _head(self) -> Place | None:
        while self._heap and self._heap[0].waiter is None:
            heappop(self._heap)
        return self._heap[0] if self._heap else None
