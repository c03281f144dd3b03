"""Measures the lag of the event loop: it shows whether the proxy itself is the bottleneck."""

import asyncio
from collections.abc import Callable

from proxy.runtime import clock
from proxy.runtime.tasks import every

EVERY_S = 0.1
"""Often enough to detect a stall of a tenth of a second, too rare to cost anything."""


def watch(observe: Callable[[float], None], every_s: float = EVERY_S) -> asyncio.Task[None]:
    """Every ``every_s``, pass ``observe`` the seconds by which the loop was late."""
    due_s: float | None = None

    def look() -> None:
        nonlocal due_s
        # A timer may fire early within the clock's resolution: that is not late.
        late_s = None if due_s is None else max(0.0, clock.monotonic_s() - due_s)
        due_s = None
        if late_s is not None:
            observe(late_s)
        due_s = clock.monotonic_s() + every_s

    return every(every_s, look, "measure event-loop lag")
