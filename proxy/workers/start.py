"""Starts the processes of workers."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from config.settings import Log


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and the supervisor's ends of its two sockets."""

    running: asyncio.subprocess.Process
    calls: socket.socket
    ports: socket.socket

    def kill(self) -> None:
        """End it at once."""
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
