"""Runs the process: one event loop with a supervisor."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config.settings import Settings
from proxy.runtime import loop
from proxy.supervisor import EXIT_FAILED, Supervisor

_FORCED_S: Final = 5.0


def run(settings: Settings, path: Path) -> int:
    """Run the proxy with the settings read from ``path`` until it is stopped; return the exit status."""
    runner, loop_name = loop.loop_runner()
    return loop.run(runner, Supervisor(settings, path, loop_name, force_next).run())


def force_next(before: Callable[[], None]) -> None:
    """Have the next signal to stop end the process, a while later, whatever hangs: the loop as well, or a thread."""

    def end() -> None:
        before()
        os._exit(EXIT_FAILED)

    def force(*_: object) -> None:
        timer = threading.Timer(_FORCED_S, end)
        timer.daemon = True
        timer.start()

    for number in (signal.SIGTERM, signal.SIGINT):  # beside the handler of the loop, which is called too
        signal.signal(number, force)
