"""The event loop of a process: uvloop, where it is installed."""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final

_SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may hold the interpreter: with it, rendering 2,000 entities delays the loop half as much."""

_THREADS_END_S: Final = 5.0
"""How long threads that are still busy are waited for at the end."""


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
    with runner:
        status = runner.run(program)
        _end_within(_THREADS_END_S, status)
        return status


def _end_within(seconds: float, status: int) -> None:
    """End the process even if a thread does not, such as one that reads a file from a dead server."""
    end = threading.Timer(seconds, os._exit, (status,))
    end.daemon = True
    end.start()
