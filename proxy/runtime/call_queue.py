"""A queue for long work in small pieces: one piece at a time, first come, first served."""

from collections import deque
from collections.abc import Callable

from proxy.runtime.faults import contained

Call = Callable[[], None]


class CallQueue:
    """Calls back in the order of requests, one at a time, so that the loop's other work comes in between.

    Otherwise a hundred sessions with a piece of some milliseconds each would block the loop for the sum. ``call_soon``
    is the loop's.
    """

    __slots__ = ("_call_soon", "_waiting")

    def __init__(self, call_soon: Callable[[Call], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Call] = deque()

    def later(self, callback: Call) -> None:
        """Enqueue ``callback``, which is called once."""
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._call_soon(self._next)

    def _next(self) -> None:
        contained("a turn", self._waiting[0])  # a failure affects no other callback
        self._waiting.popleft()
        if self._waiting:
            self._call_soon(self._next)
