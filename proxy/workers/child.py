"""The supervisor's side of one worker's process: started, kept up to date, looked at, and started again if it ends."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar, TypeVarTuple

import structlog

from config.settings import Log
from proxy.brokers.failures import describe
from proxy.contract import Changed, InForce, Report, difference
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import every, spawn
from proxy.snapshot import ProcessState
from proxy.worker import Worker
from proxy.workers.channel import Answer, Channel, GoneError
from proxy.workers.ports import Ports
from proxy.workers.process import Last, last_of

log = structlog.get_logger("sluice.workers")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_START_S: Final = 90.0
"""With 100,000 quotas it takes 3 s of CPU, and the machine may be busy."""
_LAST_S: Final = 5.0
"""How long a stop waits for what a worker hands over, and then for the end of its process."""
_ANSWER_S: Final = 1.0
_SILENT_S: Final = 2.0
_KILL_S: Final = 3.0
_STEADY_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and the supervisor's ends of its two sockets."""

    running: asyncio.subprocess.Process
    calls: socket.socket
    ports: socket.socket

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.running.kill()

    async def end(self, within_s: float = 0.0) -> int:
        """Wait for its end, and kill it after that time; return its exit status."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.running.wait()
        self.kill()
        self.calls.close()
        self.ports.close()
        return await self.running.wait()


async def new_process(log_settings: Log) -> Process:
    """Start a new interpreter: a fork would have the loop, and the locks of threads that it has not. Raises OSError."""
    calls, its_calls = socket.socketpair()
    ports, its_ports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its_calls, its_ports:
        descriptors = its_calls.fileno(), its_ports.fileno()
        try:
            running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", "from proxy.workers.process import main; main()"),
                *(str(each) for each in descriptors),
                *(log_settings.level, log_settings.format),
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            )
        except BaseException:
            calls.close()
            ports.close()
            raise
    return Process(running, calls, ports)


@dataclass(eq=False, repr=False)
class Child:
    """The process of worker ``number``."""

    number: int
    _ports: Ports
    _wanted: Callable[[int], InForce]
    """Returns what has to be in force in it now."""
    _answer: Answer
    """Answers its calls."""
    _on_end: Callable[[int], None]
    """Called when it has ended by itself."""
    restarts: int = 0
    up: bool = False
    report: Report | None = None
    """As of the last look."""
    _process: Process | None = None
    _in_force: InForce | None = None
    """As its process has acknowledged; None: nothing yet."""
    _bringing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _keeping: asyncio.Task[None] | None = None
    _pause_s: float = 0.0
    _heard_s: float = 0.0
    _looked_s: float = 0.0
    _cpu_s: float = 0.0
    _cpu_before_s: float = 0.0

    @property
    def silent_s(self) -> float:
        """For how long its event loop has not been heard."""
        return monotonic_s() - self._heard_s if self.up else 0.0

    @property
    def answers(self) -> bool:
        """Whether its event loop was heard lately: nobody waits for one that hangs."""
        return self.up and self.silent_s < _SILENT_S

    @property
    def state(self) -> ProcessState:
        return ProcessState(self.answers, self.restarts, self._cpu_before_s + self._cpu_s)

    async def start(self) -> None:
        """Start the process, and from then on whenever it has ended. Raises OSError and ValueError, as ``put``."""
        await self._launch()
        self._keeping = every(0.0, self._start_again, "start a worker again")

    async def bring(self) -> None:
        """Tell the process what has to be in force and is not; after a start, that is everything."""
        async with self._bringing:
            while changed := difference(self._in_force, wanted := self._wanted(self.number)):
                await self._channel.call(Changed(self.number, changed))
                self._in_force = wanted

    async def ask(self, function: Callable[[Worker, *Ts], Awaitable[T]], *arguments: *Ts) -> T | None:
        """Return what a function, or method, of its worker returns; None if the process ends meanwhile."""
        try:
            answer: T = await self._channel.call((function, arguments))
        except GoneError:
            return None
        return answer

    async def look(self) -> bool:
        """Have its report renewed, and kill it if its event loop does not run; return whether it has answered soon."""
        if not self.up:
            return False
        now_s, looked_s = monotonic_s(), self._looked_s
        self._looked_s = now_s
        if now_s - looked_s > _KILL_S:  # this process has slept, and not heard anybody
            self._heard_s = now_s
        if self.silent_s > _KILL_S:
            log.error("worker does not answer: killing it", worker=self.number, silent_s=round(self.silent_s, 1))
            self.kill()
        if not self.answers:
            return False
        report = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                report = await self.ask(Worker.report)
        if report is None:
            return False
        self.report, self._cpu_s = report, report.cpu_s
        if self._in_force is not None and report.fenced is not self._in_force.fenced:  # by itself, as we were silent
            self._in_force = replace(self._in_force, fenced=report.fenced)
        return True

    def retire(self) -> None:
        """Do not start it again when it ends."""
        if self._keeping is not None:
            self._keeping.cancel()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> Last | None:
        """End the process; return what it hands over, None if it does not in time."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        last = None
        if self.up:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    last = await self.ask(last_of)
            if last is None:
                log.error("worker has ended without its last usage: it is lost", worker=self.number)
            else:
                self.report = last.report
        await self._over(_LAST_S)
        return last

    async def _launch(self) -> None:
        self._process = process = await new_process(self._wanted(self.number).settings.log)
        self._channel = Channel(self._answer)
        self._in_force = None
        await self._channel.open(process.calls)
        self._ports.serve(process.ports, self._hear)
        self._serving = spawn(self._channel.serve(), "serve a worker's calls")
        try:
            async with asyncio.timeout(_START_S):
                await self.bring()
        except BaseException:
            await self._over()
            raise
        self._began_s = self._heard_s = monotonic_s()
        self.up = True

    def _hear(self) -> None:
        self._heard_s = monotonic_s()

    async def _start_again(self) -> None:
        """Wait until nothing can be asked of the process any more, and start it again."""
        await asyncio.wait((self._serving,))
        if self.up and monotonic_s() - self._began_s >= _STEADY_S:
            self._pause_s = 0.0
        else:
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        status = await self._over()
        self._on_end(self.number)
        self.restarts += 1
        log.error("worker ended: starting it again", worker=self.number, status=status, pause_s=self._pause_s)
        await asyncio.sleep(self._pause_s)
        try:
            await self._launch()
        except (OSError, ValueError) as error:
            log.error("worker cannot start", worker=self.number, error=describe(error))
        else:
            log.info("worker started again", worker=self.number)

    async def _over(self, within_s: float = 0.0) -> int | None:
        """Have the process ended ``within_s``; return its exit status."""
        self.up = False
        process, self._process = self._process, None
        if process is None:
            return None
        self._channel.close()
        self._ports.leave(process.ports)
        status = await process.end(within_s)
        await asyncio.wait((self._serving,))
        self._cpu_before_s, self._cpu_s = self._cpu_before_s + self._cpu_s, 0.0
        return status
