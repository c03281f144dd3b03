"""The life of the process: one event loop, with a supervisor on it."""

import asyncio
import sys
from pathlib import Path
from typing import Final

from config.settings import Settings
from proxy.supervisor import Supervisor

_SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may hold the interpreter: rendering 2,000 entities then delays the loop half as much."""


def run(settings: Settings, path: Path) -> int:
    """Run the proxy with the settings that ``path`` holds until it is told to stop; returns the exit status."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    runner, loop_name = _loop_runner()
    with runner:
        return runner.run(Supervisor(settings, path, loop_name).run())


def _loop_runner() -> tuple[asyncio.Runner, str]:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner(), "asyncio"
    return asyncio.Runner(loop_factory=uvloop.new_event_loop), "uvloop"
