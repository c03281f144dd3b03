"""Shadow mode: the throttles that a limit would cause if it were enforced.

In shadow mode clients are not slowed down, so the counter sees their full demand. Under enforcement, demand above the
limit would arrive later and be smaller. So the simulation queues the demand, first come, first served, and charges it
when its turn would have come.

A connection waits only for itself: it is muted behind its own throttle, and its next request is not read while one
waits. So the time that a request waits for others counts from when its connection would have sent it.
"""

from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

from quotas.rate import Rate, Window

PATIENCE_MS: Final = 120_000
"""How long a client would retry (delivery.timeout.ms): demand that waits longer is dropped."""
_MOST_WAITING: Final = 1000

W = TypeVar("W")


class Throttle(NamedTuple, Generic[W]):
    """A simulated throttle: for whom, how long, and from when."""

    whose: W
    throttle_ms: int
    at_ms: int


class SimulatedCounter(Generic[W]):
    """A simulated counter; ``W`` identifies the client whose demand it is."""

    __slots__ = ("_free", "_most_free", "_rate", "_waited", "_waiting", "until_ms", "window")

    def __init__(self, window: Window, limit: float, cap_ms: int | None = None) -> None:
        self.window = window
        self._rate = Rate(window, limit, cap_ms)
        self.until_ms = 0
        """When the last throttle ends."""
        self._waiting: deque[tuple[float, W, int, int]] = deque()
        self._free: dict[int, int] = {}
        """When each connection would have sent its next request."""
        self._most_free = _MOST_WAITING
        self._waited: list[Throttle[W]] = []

    @property
    def waiting(self) -> int:
        """How many requests would wait."""
        return len(self._waiting)

    def limit(self, limit: float) -> None:
        """Use another limit from now on."""
        if limit != self._rate.limit:
            self._rate.set_limit(limit)
            self.until_ms = 0

    def arrive(self, size: float, whose: W, now_ms: int, connection: int = 0) -> None:
        """Add demand that came on a connection; ``settle`` returns the resulting throttles."""
        if len(self._waiting) >= _MOST_WAITING:
            before, *_ = self._waiting.pop()
            size += before  # further requests are merged: fewer, longer throttles
        self._waiting.append((size, whose, now_ms, connection))

    def settle(self, now_ms: int) -> list[Throttle[W]]:
        """Return the throttles that would have begun until now, in order."""
        begun: list[Throttle[W]] = []
        while self._waiting:
            size, whose, came_ms, connection = self._waiting[0]
            at_ms = max(came_ms, self.until_ms)
            if at_ms > now_ms and at_ms - came_ms <= PATIENCE_MS:
                break
            self._waiting.popleft()
            begin_ms = max(came_ms, self._free.get(connection, came_ms))
            end_ms = min(at_ms, came_ms + PATIENCE_MS)
            if begin_ms < end_ms:
                self._waited.append(Throttle(whose, end_ms - begin_ms, begin_ms))
            if end_ms < at_ms:  # given up
                self._free[connection] = max(end_ms, begin_ms)
                continue
            throttle_ms = self._rate.charge(size, at_ms)
            self._free[connection] = at_ms + throttle_ms
            if throttle_ms:
                self.until_ms = at_ms + throttle_ms
                begun.append(Throttle(whose, throttle_ms, at_ms))
        if len(self._free) > self._most_free:
            self._free = {each: free_ms for each, free_ms in self._free.items() if free_ms > now_ms}
            self._most_free = max(2 * len(self._free), _MOST_WAITING)
        return begun

    def take_waited(self) -> list[Throttle[W]]:
        """Return the waits for other requests, among those settled since the last call: for whom, how long, and from
        when.
        """
        waited, self._waited = self._waited, []
        return waited

    def over(self, now_ms: int) -> bool:
        """Whether the queue is empty and all usage has expired."""
        last_ms = self._rate.last_ms
        return not self._waiting and (last_ms is None or last_ms + self.window.keep_ms <= now_ms)
