"""The only module that schedules work on the loop: tasks, recurring jobs, timers, sockets and signals; and long work in
pieces, so that other work comes in between.

Exceptions are reported (``proxy.runtime.faults``), never lost, and end only the work that raised them.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple

import structlog

from proxy.runtime.faults import contained, report

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Job = Callable[[], Awaitable[object] | None]

AFTER_FAULT_S: Final = 1.0
"""The shortest pause after a failed job, so that a job without a pause does not spin."""
SLICE: Final = 100
"""Items processed at a time: less than a millisecond of counters or meters. A request that is answered meanwhile waits
for several slices: with 500 items, its 99th percentile was twice as long while 5,000 clients were listed."""

log = structlog.get_logger("sluice.tasks")

_running: set[asyncio.Task[Any]] = set()


def spawn(
    work: Coroutine[Any, Any, T], name: str, at_end: Callable[[asyncio.Task[T]], object] = lambda _: None
) -> asyncio.Task[T]:
    """Run ``work`` in the background of the running loop; call ``at_end`` also if it was cancelled before it began."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(partial(_finished, at_end))
    return task


def every(period_s: float | Callable[[], float], job: Job, name: str) -> asyncio.Task[None]:
    """Run ``job`` now, and again ``period_s`` after each run, whatever it raises, until the task is cancelled."""
    return spawn(_repeat(period_s, job, name), name)


async def attempt(where: str, job: Job, within_s: float | None = None) -> bool:
    """Run ``job`` once, for ``within_s`` at most; return whether it succeeded; an exception is reported."""
    try:
        async with asyncio.timeout(within_s) as bound:
            waiting = job()
            if waiting is not None:
                await waiting
    except Exception as error:  # noqa: BLE001  all errors are contained here
        if bound.expired():
            log.error("not done in time: going on without it", where=where, seconds=within_s)
        else:
            report(where, error)
        return False
    return True


async def within(limit_s: float, work: Awaitable[T]) -> T:
    """Return the result of ``work``. Raises TimeoutError after ``limit_s``, and then ``work`` is cancelled.

    It is ``asyncio.timeout`` without its states: in an enumeration, they take a tenth of a short connection.
    """
    task, is_over = asyncio.current_task(), False
    assert task is not None  # noqa: S101  for mypy

    def end() -> None:
        nonlocal is_over
        is_over = task.cancel()

    timer = asyncio.get_running_loop().call_later(limit_s, end)
    try:
        return await work
    except asyncio.CancelledError:
        if is_over and not task.uncancel():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


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
        report("event loop", error if isinstance(error, BaseException) else RuntimeError(said))


async def _repeat(period_s: float | Callable[[], float], job: Job, name: str) -> None:
    while True:
        came_to_its_end = await attempt(name, job)
        pause_s = period_s() if callable(period_s) else period_s
        await asyncio.sleep(pause_s if came_to_its_end else max(pause_s, AFTER_FAULT_S))


def _finished(at_end: Callable[[asyncio.Task[Any]], object], task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        report(task.get_name(), error)
    at_end(task)


# --------------------------------------------------------------------------------------------------- long work


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return all items of an iterable, which is consumed in slices."""
    made = []
    for number, item in enumerate(items, 1):
        made.append(item)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return made


class CallQueue:
    """Calls back in the order of requests, one at a time, with the loop's other work in between.

    Otherwise a hundred sessions with a piece of some milliseconds each would block the loop for the sum. ``call_soon``
    is the loop's.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()

    def later(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._call_soon(self._next)

    def _next(self) -> None:
        contained("a turn", self._waiting[0])  # a failure affects no other callback
        self._waiting.popleft()
        if self._waiting:
            self._call_soon(self._next)


class SharedWork(Generic[T]):
    """Work that is done once for all who wait for it.

    One who leaves does not end it for the others; when none is left, it is given up.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = spawn(work, "work for several")
        self._waiting = 0
        self.is_given_up = False

    async def result(self) -> T:
        """Wait for its result. Raises as the work does."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self.is_given_up = True
                self._task.cancel()
