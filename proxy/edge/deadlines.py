"""Until when clients have to have come to a session: one timer for all, for few ever come to their deadline."""

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.edge.arrivals import Arrival
from proxy.runtime.tasks import AFTER_FAULT_S, later

_AT_ONCE: Final = 20
"""Arrivals that are ended in one turn of the loop: each takes some 50 µs."""


class Deadlines:
    """Those who are arriving at one listener. ``overdue`` is told once of each whose deadline is over, and ends it."""

    def __init__(self, overdue: Callable[[Arrival], None]) -> None:
        self._overdue = overdue
        self.arriving: dict[Arrival, None] = {}
        """In the order of their deadlines, which is that in which they came."""
        self._next: asyncio.TimerHandle | None = None

    def watch(self, arrival: Arrival, left_s: float) -> None:
        """Tell of it in so many seconds, unless it is forgotten before."""
        self.arriving[arrival] = None
        if self._next is None:
            self._set(left_s)

    def forget(self, arrival: Arrival) -> None:
        """Take note that it has come to a session, or to its end."""
        self.arriving.pop(arrival, None)

    def stop(self) -> None:
        """Tell of nobody any more."""
        if self._next is not None:
            self._next.cancel()

    def _set(self, left_s: float) -> None:
        self._next = later(left_s, "arrivals are overdue", self._end_overdue, otherwise=self._set_again)

    def _set_again(self) -> None:
        """Look again in a while: to look has failed, and no other connection would set the timer."""
        self._set(AFTER_FAULT_S)

    def _end_overdue(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._next = None
        for _ in range(_AT_ONCE):
            arrival = next(iter(self.arriving), None)
            if arrival is None:
                return
            if arrival.deadline_s > now_s:
                self._set(arrival.deadline_s - now_s)
                return
            self._overdue(arrival)
            self.forget(arrival)
        self._set(0.0)
