"""However the demo is ended, nothing that it started is left."""

import signal
from typing import Final

import psutil

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_STATUS: Final = 130


class Interrupted(BaseException):
    """Somebody asked for the end; as with KeyboardInterrupt, no ``except Exception`` may stand in the way."""


def obey_signals() -> None:
    """From now on the first Ctrl-C, or signal to end, raises Interrupted."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def ignore_signals() -> None:
    """While things are put away, a second Ctrl-C must not leave half of them behind."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_what_is_left() -> None:
    """Kill children that nobody knows of: a signal can fall between a process's start and its being noted down."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children)


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    ignore_signals()
    raise Interrupted
