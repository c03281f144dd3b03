"""The supervisor's side of one worker's process: started, asked whether it is alive, and started again when it ends."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from config.settings import Log
from proxy.brokers.failures import describe
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import every, spawn
from proxy.workers.channel import Answer, Channel, GoneError
from proxy.workers.ports import Ports
from proxy.workers.process import Look

log = structlog.get_logger("sluice.workers")

_START_S: Final = 90.0
"""With 100,000 quotas it takes 3 s of CPU, and the machine may be busy."""
_END_S: Final = 5.0
_ANSWER_S: Final = 1.0
_SILENT_S: Final = 3.0
_STEADY_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and the supervisor's ends of its two sockets."""

    running: asyncio.subprocess.Process
    calls: socket.socket
    ports: socket.socket

    async def end(self, within_s: float = 0.0) -> int:
        """Wait for its end, and kill it after that time; return its exit status."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.running.wait()
        with suppress(ProcessLookupError):
            self.running.kill()
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


class Child:
    """The process of worker ``number``. ``take`` returns a new process, ``begin`` the arguments of its first call.
    ``answer`` answers its calls. ``on_end`` is called when it has ended by itself.
    """

    def __init__(
        self,
        number: int,
        ports: Ports,
        take: Callable[[], Awaitable[Process]],
        begin: Callable[[int], tuple[Any, ...]],
        answer: Answer,
        on_end: Callable[[int], None],
    ) -> None:
        self.number = number
        self.restarts = 0
        self.up = False
        self.channel: Channel | None = None
        self._ports = ports
        self._take = take
        self._begin = begin
        self._answer = answer
        self._on_end = on_end
        self._keeping: asyncio.Task[None] | None = None
        self._pause_s = 0.0
        self._heard_s = self._looked_s = 0.0
        self._cpu_s = 0.0
        self._cpu_before_s = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU time of all its processes, as of the last look."""
        return self._cpu_before_s + self._cpu_s

    async def start(self) -> int:
        """Start the process, and from then on whenever it has ended; return its limit of connections.

        Raises OSError and ValueError, as ``Worker.start``.
        """
        limit = await self._launch()
        self._keeping = every(0.0, self._start_again, "start a worker again")
        return limit

    async def look(self) -> Look | None:
        """Look at it, and kill it if its event loop does not run; None if it does not answer soon."""
        if self.channel is None or not self.up:
            return None
        now_s, looked_s = monotonic_s(), self._looked_s
        self._looked_s = now_s
        if now_s - looked_s > _SILENT_S:  # this process has slept, and not heard anybody
            self._heard_s = now_s
        if now_s - self._heard_s > _SILENT_S:
            log.error(
                "worker does not answer: killing it", worker=self.number, silent_s=round(now_s - self._heard_s, 1)
            )
            self._process.running.kill()
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                look: Look = await self.channel.call("look")
        except (GoneError, TimeoutError):
            return None
        self._cpu_s = look.cpu_s
        return look

    def retire(self) -> None:
        """Do not start it again when it ends."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def end(self) -> None:
        """End the process, and do not start it again."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        await self._over(_END_S)

    async def _launch(self) -> int:
        self._process = process = await self._take()
        channel = Channel(self._answer)
        await channel.open(process.calls)
        self._ports.serve(process.ports, self._hear)
        self._serving = spawn(channel.serve(), "serve a worker's calls")
        self.channel = channel
        try:
            async with asyncio.timeout(_START_S):
                limit: int = await channel.call("begin", *self._begin(self.number))
        except BaseException:
            await self._over()
            raise
        self._began_s = self._heard_s = monotonic_s()
        self.up = True
        return limit

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
        if self.channel is None:
            return None
        self.channel.close()
        self.channel = None
        self._ports.leave(self._process.ports)
        status = await self._process.end(within_s)
        await asyncio.wait((self._serving,))
        self._cpu_before_s, self._cpu_s = self.cpu_s, 0.0
        return status
