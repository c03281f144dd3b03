"""The process of one worker. The supervisor starts it (``child``) with two sockets: one for calls, one for ports."""

import asyncio
import gc
import signal
import socket
import sys
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from config.owners import Owners
from config.settings import Log, Settings
from proxy.contract import Changed, InForce, Report
from proxy.edge.connection_slots import capacity, raise_limit, slots_of
from proxy.edge.sorter import Passing
from proxy.runtime import logs, loop
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import every, on_loop_error, on_signal, spawn
from proxy.usage.records import Columns
from proxy.worker import Worker
from proxy.workers.channel import Channel
from proxy.workers.ports import TO_WORKER, PortsOfSupervisor

log = structlog.get_logger("sluice.worker")

_OF_THE_SUPERVISOR: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ALIVE_EVERY_S: Final = 0.5
_MARGIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Last:
    """Everything that a process hands over at its end: nobody asks it afterwards."""

    cut_off: int
    """Sessions that were open."""
    usage: list[Columns]
    """The rows of usage records since the last ones were taken."""
    report: Report


class WorkerProcess:
    """Has in force what the supervisor says, and serves on when that has ended, with what it has."""

    def __init__(self, calls: socket.socket, ports: socket.socket) -> None:
        self._calls = calls
        self._ports = PortsOfSupervisor(ports)
        self._channel = Channel(self._answer)
        self._worker: Worker | None = None
        self._heard_s = monotonic_s()
        self._told_to_stop = asyncio.Event()

    async def run(self) -> int:
        """Run to the end; return the exit status."""
        asyncio.get_running_loop().set_exception_handler(on_loop_error)
        for number in _OF_THE_SUPERVISOR:  # it acts for all; a terminal sends them to every process
            signal.signal(number, signal.SIG_IGN)
        on_signal(signal.SIGTERM, "stop", self._told_to_stop.set)
        await self._channel.open(self._calls)
        await self._channel.serve()
        if self._worker is not None:
            await self._without_supervisor(self._worker)
        return 0

    async def _without_supervisor(self, worker: Worker) -> None:
        """Serve on until SIGTERM; not while stopping, nor in a group, where others own the brokers within a second."""
        settings = worker.in_force.settings
        if _in_group(settings):
            log.error("the supervisor has ended, and others own its brokers: stopping", fix="restart the service")
        elif worker.accepts:
            log.error("the supervisor has ended: serving on until SIGTERM", fix="restart the service")
            await self._told_to_stop.wait()
        await worker.drain(settings.drain.timeout_s)
        await worker.stop()

    async def _answer(self, asked: Any) -> object:
        """Answer a call: ``Changed``, or a function of a ``Worker`` and its further arguments."""
        self._heard_s = monotonic_s()
        if isinstance(asked, Changed):
            await self._put(asked)
            return None
        function, arguments = asked
        return await function(self._worker, *arguments)

    async def _put(self, changed: Changed) -> None:
        if self._worker is not None:
            await self._worker.put(replace(self._worker.in_force, **changed.fields))
            return
        logs.say_worker(changed.worker)
        in_force = InForce(**changed.fields)
        settings = in_force.settings
        ask = self._ask if in_force.answers_clients else None
        self._worker = Worker(settings, self._ports.bind, ask, changed.worker, self._passing(changed.worker, settings))
        await self._worker.put(in_force)
        gc.collect()
        gc.freeze()  # as the supervisor does
        every(_ALIVE_EVERY_S, self._ports.tell_alive, "tell that a worker is alive")
        if _in_group(settings):
            every(_ALIVE_EVERY_S, self._hear_supervisor, "hear whether the supervisor is alive")

    def _hear_supervisor(self) -> None:
        """Own no broker from the moment when others may own them, because the supervisor is silent.

        It sees that in the next report, and says again what has to be in force: by then it has looked at the clock.
        """
        assert self._worker is not None  # noqa: S101  for mypy: it has begun
        silent_s, in_force = monotonic_s() - self._heard_s, self._worker.in_force
        if not in_force.fenced and silent_s > silence_s(in_force.settings.owners):
            log.error("the supervisor does not answer: serving no broker until it does", silent_s=round(silent_s, 1))
            spawn(self._worker.put(replace(in_force, fenced=True)), "tell the owners of brokers")

    async def _ask(self, frame: bytes, user: str, client_id: str, peer: str) -> bytes:
        answer: bytes = await self._channel.call((frame, user, client_id, peer))
        return answer

    def _passing(self, number: int, settings: Settings) -> Passing | None:
        """Return what passes connections on, if there are listeners whose port all workers share."""
        if all(each.broker_host is None for each in settings.listeners):
            return None
        channels = [self._ports.bind(TO_WORKER, each) for each in range(settings.workers)]
        unsorted = slots_of(settings, capacity(settings, raise_limit()).unsorted)
        return Passing(number, channels, unsorted)


async def usage_of(worker: Worker) -> list[Columns]:
    return [columns async for columns, _ in worker.usage()]


async def last_of(worker: Worker) -> Last:
    """Stop a worker; return its last usage and report."""
    cut_off = await worker.stop()
    return Last(cut_off, await usage_of(worker), await worker.report())


def silence_s(owners: Owners | None) -> float:
    """Return how long a worker serves without a word of its supervisor, which may have sent no heartbeats either."""
    if owners is None:
        return float("inf")
    return max(owners.session_s - owners.heartbeat_s - _MARGIN_S, owners.session_s / 2)


def _in_group(settings: Settings) -> bool:
    return settings.owners is not None and settings.owners.group is not None


def main() -> None:
    """Run the process. Arguments: descriptors for calls and ports, level and format of the log."""
    calls, ports, level, log_format = sys.argv[1:]
    settings = Log.model_validate({"level": level, "format": log_format})
    logs.configure(settings.level, settings.format)
    runner, _ = loop.loop_runner()
    with logs.writer_thread():
        process = WorkerProcess(socket.socket(fileno=int(calls)), socket.socket(fileno=int(ports)))
        status = loop.run(runner, process.run())
    sys.exit(status)
