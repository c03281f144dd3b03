"""A pace for work that strangers cause: so much per turn of the loop."""

import asyncio
from collections import deque

from proxy.runtime.tasks import later


class Pacer:
    """Rate limiter: ``in_a_turn`` callers pass in each turn of the loop, first come, first served.

    A handshake takes the loop a millisecond. After a restart all clients reconnect at once; connected clients must not
    wait until the last handshake is done.
    """

    def __init__(self, in_a_turn: int) -> None:
        self._in_a_turn = in_a_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._passed = 0
        self._begun = False

    async def turn(self) -> None:
        """Wait for this caller's turn."""
        if not self._begun:
            self._begun = True
            later(0.0, "begin TLS handshakes", self._next, otherwise=self._restart)
        if self._passed < self._in_a_turn and not self._waiting:
            self._passed += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _next(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < self._in_a_turn:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled
                first.set_result(None)
                self._passed += 1
        self._begun = bool(self._passed)
        if self._begun:
            later(0.0, "begin TLS handshakes", self._next, otherwise=self._restart)

    def _restart(self) -> None:
        """Schedule the next batch again after ``_next`` has failed."""
        later(0.0, "begin TLS handshakes", self._next)
