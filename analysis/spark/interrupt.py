"""Ctrl-C: a terminal sends SIGINT, Spark's jobs are cancelled, and the command ends with one line.

PySpark keeps the signal from Java, and has a handler of its own, which asks Java from within whatever the program was
just asking Java: what comes of it are pages about the two. Ours asks in a thread of its own, so over another
connection, and has Java tell nothing of jobs that are cancelled.

SIGTERM is kept from Java as well: who sends it to all processes of a command (systemd does, if nobody says otherwise)
would have Java end under the hands of the program, and tell of it at length. Java ends when the program does.
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

EXIT_STATUS: Final = 130
"""Of a command that it ended: 128 and the number of the signal, as shells have it."""
_came = threading.Event()
_starts_java = threading.Event()


def is_cause(error: BaseException) -> bool:
    """Whether what is raised comes of a SIGINT: Spark has words of its own for jobs that were cancelled."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return found is not None or _came.is_set()


def start(make: "Callable[[], SparkContext]") -> "SparkContext":
    """Return the context that ``make`` starts, if there is none. From then on SIGINT cancels its jobs.

    Until then it is noted: Java would tell of who leaves it alone. In a thread, where PySpark sets no handler.
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
        _came.set()
        raise KeyboardInterrupt
    return context


def _started(make: "Callable[[], SparkContext]") -> "SparkContext":
    _starts_java.set()
    try:
        return make()
    finally:
        _starts_java.clear()


def _in_child() -> None:
    """Have Java ignore SIGTERM, as PySpark has it ignore SIGINT: that outlasts the execution of a program."""
    if _starts_java.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_in_child)


def _hear(context: "SparkContext") -> None:
    """Have SIGINT cancel jobs and raise KeyboardInterrupt."""

    def cancel() -> None:
        with suppress(Exception):  # Java may have ended
            context.setLogLevel("OFF")
            context.cancelAllJobs()

    def handle(_: int, __: FrameType | None) -> None:
        _came.set()
        threading.Thread(target=cancel, name="interrupt", daemon=True).start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
