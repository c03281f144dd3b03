"""The one place that asks the loop to run something: tasks, recurring jobs, timers, sockets and signals.

What they raise is noted (``proxy.runtime.faults``), never lost, and stops nothing but itself.
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
"""The least pause after a job has failed, so that one without a pause of its own does not spin."""

log = structlog.get_logger("sluice.tasks")

_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Run ``work`` in the background of the running loop."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def every(period_s: float | Callable[[], float], job: Job, name: str) -> asyncio.Task[None]:
    """Run ``job`` now, and again ``period_s`` after each end of it, whatever it raises, until the task is cancelled."""
    return spawn(_repeat(period_s, job, name), name)


async def attempt(where: str, job: Job) -> bool:
    """Run ``job`` once; return whether it came to its end, with what it raised noted."""
    try:
        waiting = job()
        if waiting is not None:
            await waiting
    except Exception as error:  # noqa: BLE001  that nothing gets past is what this is for
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
    """Call ``call``, contained, whenever there is something to read, until the reader is removed from the loop."""
    asyncio.get_running_loop().add_reader(readable, lambda: contained(where, call, *args))


def on_signal(number: int, where: str, call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call ``call``, contained, whenever the process gets this signal."""
    asyncio.get_running_loop().add_signal_handler(number, lambda: contained(where, call, *args))


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Take what reached the loop itself (``set_exception_handler``): from libraries, for ours is contained before."""
    error, said = context.get("exception"), str(context.get("message"))
    if isinstance(error, OSError):  # of a connection: its end is told to whoever has it
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
