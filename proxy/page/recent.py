"""Answers that are kept for a moment, so that pages which are open together are made once."""

from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import SharedWork

_MOST: Final = 64


class RecentAnswers:
    """Answers by key."""

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, SharedWork[Any]]] = {}

    async def get(self, key: Hashable, keep_s: float, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return what ``make`` returned for this key, if that is recent, else call it. Raises as ``make``."""
        now_s = self._clock()
        until_s, work = self._kept.get(key, (now_s, None))
        if work is None or work.is_given_up or now_s >= until_s:
            self._kept = {each: kept for each, kept in self._kept.items() if now_s < kept[0]}
            if len(self._kept) >= _MOST:
                self._kept.clear()
            work = SharedWork(make())
            self._kept[key] = now_s + keep_s, work
        return await work.result()
