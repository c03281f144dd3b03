"""Python's garbage collector, which stops the loop: it waits while much is made that lives for one answer only."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proxy.runtime.clock import monotonic_s

_LONGEST_S: Final = 10.0
"""Then it works on: askers who never leave off must not fill the memory."""


class _Collector:
    def __init__(self) -> None:
        self._pauses = 0
        self._began_s = 0.0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause it until the last of those that go on at the same time has ended. For the loop, not for a thread."""
        if not self._pauses:
            self._began_s = monotonic_s()
            gc.disable()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses or monotonic_s() - self._began_s > _LONGEST_S:
                gc.enable()


COLLECTOR: Final = _Collector()
