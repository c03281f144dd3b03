"""The event loop of a process: uvloop, where it is installed; and how late it is."""

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from proxy.runtime import clock
from proxy.runtime.tasks import every

_SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may hold the interpreter: with it, rendering 2,000 entities delays the loop half as much."""

_COLLECTED_AT: Final = (50_000, 10, 10)
"""When Python's garbage collector runs, which stops the loop: by default, many times for each answer of the admin port
(docs/decisions/0045).
"""

_THREADS_END_S: Final = 5.0
"""How long threads that are still busy are waited for at the end."""

LAG_EVERY_S: Final = 0.1
"""Often enough to detect a stall of a tenth of a second, too rare to cost anything."""


def loop_runner() -> tuple[asyncio.Runner, str]:
    """Return a runner, and the name of its loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner(), "asyncio"
    return asyncio.Runner(loop_factory=uvloop.new_event_loop), "uvloop"


def run(runner: asyncio.Runner, program: Coroutine[Any, Any, int]) -> int:
    """Run a program on a loop to its end; return its exit status."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_COLLECTED_AT)
    with runner:
        status = runner.run(program)
        # The process ends even if a thread does not, such as one that reads a file from a dead server.
        end = threading.Timer(_THREADS_END_S, os._exit, (status,))
        end.daemon = True
        end.start()
        return status


def watch_lag(observe: Callable[[float], None], every_s: float = LAG_EVERY_S) -> asyncio.Task[None]:
    """Every ``every_s``, pass ``observe`` the seconds by which the loop was late."""

    async def look() -> None:
        due_s = clock.monotonic_s() + every_s
        await asyncio.sleep(every_s)
        observe(max(0.0, clock.monotonic_s() - due_s))  # a timer may fire early within the clock's resolution

    return every(0.0, look, "measure event-loop lag")
