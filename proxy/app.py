"""Runs the process: one event loop with a supervisor."""

from pathlib import Path

from config.settings import Settings
from proxy.runtime import loop
from proxy.supervisor import Supervisor


def run(settings: Settings, path: Path) -> int:
    """Run the proxy with the settings read from ``path`` until it is stopped; return the exit status."""
    runner, loop_name = loop.loop_runner()
    return loop.run(runner, Supervisor(settings, path, loop_name).run())
