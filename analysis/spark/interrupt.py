"""SIGINT (Ctrl-C) and SIGTERM cancel Spark's jobs, and the command ends with one line.

PySpark's own handler calls Java from within another call to Java, which prints pages of errors. Ours calls Java in a
thread, over another connection, and turns off Java's log of cancelled jobs.

Java ignores SIGTERM: systemd sends it to all processes of a service, and Java would end before the program, with pages
of errors. Java ends with the program.
"""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_came: list[int] = []
_starts_java = threading.Event()


def exit_status() -> int:
    """Return 128 + the number of the signal, as in shells."""
    return 128 + (_came[0] if _came else signal.SIGINT)


def is_cause(error: BaseException) -> bool:
    """Whether a signal caused an error, such as Spark's for a cancelled job."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return found is not None or bool(_came)


def start(make: "Callable[[], SparkContext]") -> "SparkContext":
    """Return the context that ``make`` starts. From then on SIGINT and SIGTERM cancel its jobs.

    A SIGINT during the start takes effect afterwards. ``make`` runs in a thread, in which PySpark sets no handler.
    """
    if threading.current_thread() is not threading.main_thread():
        return _started(make)
    early = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: early.set())
    try:
        with ThreadPoolExecutor(1) as thread:
            context = thread.submit(_started, make).result()
    finally:
        signal.signal(signal.SIGINT, before)
    _hear(context)
    if early.is_set():
        _came.append(signal.SIGINT)
        raise KeyboardInterrupt
    return context


def _started(make: "Callable[[], SparkContext]") -> "SparkContext":
    _starts_java.set()
    try:
        return make()
    finally:
        _starts_java.clear()


def _in_child() -> None:
    """Ignore SIGTERM in the forked process, which Java inherits, as PySpark does for SIGINT."""
    if _starts_java.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_in_child)


def _hear(context: "SparkContext") -> None:
    """Install the handler of both signals, which cancels jobs and raises KeyboardInterrupt."""

    def cancel() -> None:
        with suppress(Exception):  # Java may have ended
            context.setLogLevel("OFF")
            context.cancelAllJobs()

    def handle(number: int, _: FrameType | None) -> None:
        _came.append(number)
        threading.Thread(target=cancel, name="interrupt", daemon=True).start()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, handle)
