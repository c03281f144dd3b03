"""How late the event loop calls back: the one number that says whether the proxy itself is the bottleneck."""

import asyncio
from collections.abc import Callable

from proxy import clock

EVERY_S = 0.1
"""Often enough to meet a stall of a tenth of a second, too rare to cost anything."""


async def watch(observe: Callable[[float], None], every_s: float = EVERY_S) -> None:
    """Sleep for ``every_s`` seconds, over and over, and give ``observe`` the seconds by which it was longer.

    Runs until it is cancelled.
    """
    while True:
        due_s = clock.monotonic_s() + every_s
        await asyncio.sleep(every_s)
        # A timer may fire within the clock's resolution before its time: that is not late.
        observe(max(0.0, clock.monotonic_s() - due_s))
