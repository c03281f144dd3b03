"""Work that is done once for all who wait for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from proxy.runtime.tasks import spawn

T = TypeVar("T")


class SharedWork(Generic[T]):
    """One who leaves does not end it for the others; when none is left, it is given up."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = spawn(work, "work for several")
        self._waiting = 0
        self.is_given_up = False

    async def result(self) -> T:
        """Wait for its result. Raises as the work does."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self.is_given_up = True
                self._task.cancel()
