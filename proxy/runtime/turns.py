"""Long work in small pieces, one piece at a time: whoever has more to do stands in line behind all others."""

from collections import deque
from collections.abc import Callable

from proxy.runtime.faults import contained

Call = Callable[[], None]


class Turns:
    """Calls back in the order of asking, one at a time; what else the loop has to do comes in between.

    One at a time, because a hundred sessions with a piece of some milliseconds each would be one long piece.
    ``call_soon`` is the loop's.
    """

    __slots__ = ("_call_soon", "_waiting")

    def __init__(self, call_soon: Callable[[Call], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Call] = deque()

    def later(self, callback: Call) -> None:
        """Call ``callback`` once, when its turn has come."""
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._call_soon(self._next)

    def _next(self) -> None:
        contained("a turn", self._waiting[0])  # what is nobody's turn ends nobody else's
        self._waiting.popleft()
        if self._waiting:
            self._call_soon(self._next)
