"""However the demo is ended, nothing that it started is left."""

import signal
import sys
from typing import Final

import psutil

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_STATUS: Final = 130
_AGAIN_S: Final = 0.5
"""How soon an interruption that nobody has seen is repeated."""


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
    signal.setitimer(signal.ITIMER_REAL, 0)


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
    """Raise Interrupted; and again, should it fall into a destructor, where Python drops what is raised."""
    del number, frame
    ignore_signals()
    if _is_on_its_way(sys.exception()):
        return
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    raise Interrupted


def _is_on_its_way(error: BaseException | None) -> bool:
    """Whether an Interrupted is being handled: things are put away, which may take long."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None
