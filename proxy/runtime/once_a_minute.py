"""What may be logged, and what is one of many: a flood must not become one of log lines."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

INTERVAL_MS: Final = 60_000
MAX_KEPT: Final = 1000
"""Keys with a line of their own in one interval; the others share one."""

OTHERS: Final = "others"

Key = TypeVar("Key", bound=Hashable)


class _Suppressed:
    __slots__ = ("count", "until_ms")

    def __init__(self, until_ms: int) -> None:
        self.count = 0
        self.until_ms = until_ms


class OnceAMinute(Generic[Key]):
    """Admits one line for each key and minute; ``say_more(key, number)`` writes the one that counts the rest.

    Call ``flush`` every now and then: it has those counts written, and forgets.
    """

    def __init__(self, say_more: Callable[[Key, int], None]) -> None:
        self._say_more = say_more
        self._suppressed: dict[Key, _Suppressed] = {}

    def admits(self, key: Key, others: Key, now_ms: int) -> bool:
        """Say whether a line may be written for ``key``, or where there are too many of them, for ``others``."""
        if key not in self._suppressed and len(self._suppressed) >= MAX_KEPT:
            key = others
        suppressed = self._suppressed.get(key)
        if suppressed is not None and now_ms < suppressed.until_ms:
            suppressed.count += 1
            return False
        if suppressed is not None and suppressed.count:
            self._say_more(key, suppressed.count)
        self._suppressed[key] = _Suppressed(now_ms + INTERVAL_MS)
        return True

    def flush(self, now_ms: int) -> None:
        """Have written how many more there were, where the interval is over."""
        for key in [key for key, suppressed in self._suppressed.items() if now_ms >= suppressed.until_ms]:
            count = self._suppressed.pop(key).count
            if count:
                self._say_more(key, count)
