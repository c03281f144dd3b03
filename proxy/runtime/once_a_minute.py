"""Limits log lines to one per key and minute, so that a flood of events does not flood the log."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from quotas.folding import fold

INTERVAL_MS: Final = 60_000
MAX_KEPT: Final = 1000
"""Keys with a line of their own in one interval; all others share one."""

OTHERS: Final = "others"

Key = TypeVar("Key", bound=Hashable)


class _Suppressed:
    __slots__ = ("count", "until_ms")

    def __init__(self, until_ms: int) -> None:
        self.count = 0
        self.until_ms = until_ms


class OnceAMinute(Generic[Key]):
    """Admits one line per key and minute; ``say_more(key, number)`` logs the number of the rest.

    ``flush`` has to be called now and then: it logs those numbers.
    """

    def __init__(self, say_more: Callable[[Key, int], None]) -> None:
        self._say_more = say_more
        self._suppressed: dict[Key, _Suppressed] = {}

    def admits(self, key: Key, others: Key, now_ms: int) -> bool:
        """Return whether a line may be logged for ``key``, or for ``others`` if there are too many keys."""
        key = fold(key, self._suppressed, MAX_KEPT, others)
        suppressed = self._suppressed.get(key)
        if suppressed is not None and now_ms < suppressed.until_ms:
            suppressed.count += 1
            return False
        if suppressed is not None and suppressed.count:
            self._say_more(key, suppressed.count)
        self._suppressed[key] = _Suppressed(now_ms + INTERVAL_MS)
        return True

    def flush(self, now_ms: int) -> None:
        """Log how many more there were, for intervals that are over."""
        for key in [key for key, suppressed in self._suppressed.items() if now_ms >= suppressed.until_ms]:
            count = self._suppressed.pop(key).count
            if count:
                self._say_more(key, count)
