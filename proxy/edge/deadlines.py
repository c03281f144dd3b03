"""Deadlines for the first request: one timer per listener, since few connections ever reach theirs."""

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.edge.arrivals import Arrival
from proxy.runtime.tasks import AFTER_FAULT_S, later

_AT_ONCE: Final = 20
"""Connections closed per turn of the loop: each takes some 50 µs."""


class Deadlines:
    """The connections of one listener that have no session yet. ``overdue`` is called once for each that misses its
    deadline, and closes it.
    """

    def __init__(self, overdue: Callable[[Arrival], None]) -> None:
        self._overdue = overdue
        self.arriving: dict[Arrival, None] = {}
        """In the order of arrival, and so of deadlines. One that another worker has passed on may have an earlier
        deadline; it is closed with those before it.
        """
        self._next: asyncio.TimerHandle | None = None

    def watch(self, arrival: Arrival, left_s: float) -> None:
        """Call ``overdue`` for it in ``left_s``, unless it is forgotten before."""
        self.arriving[arrival] = None
        if self._next is None:
            self._set(left_s)

    def forget(self, arrival: Arrival) -> None:
        """Drop a connection that got its session, or ended."""
        self.arriving.pop(arrival, None)

    def stop(self) -> None:
        """Call ``overdue`` no more."""
        if self._next is not None:
            self._next.cancel()

    def _set(self, left_s: float) -> None:
        self._next = later(left_s, "arrivals are overdue", self._end_overdue, otherwise=self._set_again)

    def _set_again(self) -> None:
        """Set the timer again after a failure: no other connection would."""
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
