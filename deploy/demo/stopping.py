"""Clean-up: no process survives the demo, however it ends."""

import signal
import sys
from typing import Final

import psutil

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_STATUS: Final = 130
_AGAIN_S: Final = 0.5
"""How soon a lost interruption is repeated."""


class Interrupted(BaseException):
    """A signal asked the demo to end; not an Exception, like KeyboardInterrupt, so that ``except Exception`` does not
    catch it.
    """


def obey_signals() -> None:
    """Make the first Ctrl-C, or termination signal, raise Interrupted."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def ignore_signals() -> None:
    """Ignore further signals, so that the clean-up is not interrupted."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def end_what_is_left() -> None:
    """Kill remaining children: a signal may arrive between a process's start and its registration."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children)


def _interrupt(number: int, frame: object) -> None:
    """Raise Interrupted; repeat it, in case it was raised in a destructor, where Python drops exceptions."""
    del number, frame
    ignore_signals()
    if _is_on_its_way(sys.exception()):
        return
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    raise Interrupted


def _is_on_its_way(error: BaseException | None) -> bool:
    """Whether an Interrupted is already being handled: the clean-up may take long."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None
