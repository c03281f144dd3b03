"""Runs the process: one event loop with a supervisor."""

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Final

from config.settings import Settings
from proxy.supervisor import Supervisor

_SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may hold the interpreter: with it, rendering 2,000 entities delays the loop half as much."""

_THREADS_END_S: Final = 5.0
"""How long threads that are still busy are waited for at the end."""


def run(settings: Settings, path: Path) -> int:
    """Run the proxy with the settings read from ``path`` until it is stopped; return the exit status."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    runner, loop_name = _loop_runner()
    with runner:
        status = runner.run(Supervisor(settings, path, loop_name).run())
        _end_within(_THREADS_END_S, status)
        return status


def _end_within(seconds: float, status: int) -> None:
    """End the process even if a thread does not, such as one that reads a file from a dead server."""
    end = threading.Timer(seconds, os._exit, (status,))
    end.daemon = True
    end.start()


def _loop_runner() -> tuple[asyncio.Runner, str]:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner(), "asyncio"
    return asyncio.Runner(loop_factory=uvloop.new_event_loop), "uvloop"
