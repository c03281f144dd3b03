"""The only module that schedules work on the loop: tasks, recurring jobs, timers, sockets and signals.

Exceptions are noted (``proxy.runtime.faults``), never lost, and end only the work that raised them.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

import structlog

from proxy.runtime.faults import contained, note

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Job = Callable[[], Awaitable[object] | None]

AFTER_FAULT_S: Final = 1.0
"""The shortest pause after a failed job, so that a job without a pause does not spin."""

log = structlog.get_logger("sluice.tasks")

_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Run ``work`` in the background of the running loop."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def every(period_s: float | Callable[[], float], job: Job, name: str) -> asyncio.Task[None]:
    """Run ``job`` now, and again ``period_s`` after each run, whatever it raises, until the task is cancelled."""
    return spawn(_repeat(period_s, job, name), name)


async def attempt(where: str, job: Job, within_s: float | None = None) -> bool:
    """Run ``job`` once, for ``within_s`` at most; return whether it succeeded; an exception is noted."""
    try:
        async with asyncio.timeout(within_s) as bound:
            waiting = job()
            if waiting is not None:
                await waiting
    except Exception as error:  # noqa: BLE001  all errors are contained here
        if bound.expired():
            log.error("not done in time: going on without it", where=where, seconds=within_s)
        else:
            note(where, error)
        return False
    return True


def later(
    delay_s: float, where: str, call: Callable[[*Ts], object], *args: *Ts, otherwise: Callable[[], object] | None = None
) -> asyncio.TimerHandle:
    """Call ``call`` in ``delay_s``, contained."""
    loop = asyncio.get_running_loop()
    return loop.call_later(delay_s, lambda: contained(where, call, *args, otherwise=otherwise))


def on_readable(readable: socket.socket, where: str, call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call ``call``, contained, whenever ``readable`` has data, until the reader is removed from the loop."""
    asyncio.get_running_loop().add_reader(readable, lambda: contained(where, call, *args))


def on_signal(number: int, where: str, call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call ``call``, contained, whenever the process gets this signal."""
    asyncio.get_running_loop().add_signal_handler(number, lambda: contained(where, call, *args))


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle errors that reach the loop (``set_exception_handler``): those of libraries, since our
    own are contained.
    """
    error, said = context.get("exception"), str(context.get("message"))
    if isinstance(error, OSError):  # of a connection, whose owner is told separately
        log.debug("connection failed", loop=type(loop).__name__, message=said, error=str(error))
    else:
        note("event loop", error if isinstance(error, BaseException) else RuntimeError(said))


async def _repeat(period_s: float | Callable[[], float], job: Job, name: str) -> None:
    while True:
        came_to_its_end = await attempt(name, job)
        pause_s = period_s() if callable(period_s) else period_s
        await asyncio.sleep(pause_s if came_to_its_end else max(pause_s, AFTER_FAULT_S))


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        note(task.get_name(), error)
