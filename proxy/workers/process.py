"""The process of one worker. The supervisor starts it (``child``) with two sockets: one for calls, one for ports."""

import asyncio
import gc
import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Final

import structlog

from config.settings import Log, Mode, Settings
from proxy.brokers.known_brokers import KnownBrokers
from proxy.edge.connection_slots import slots_of
from proxy.edge.descriptors import capacity, raise_limit
from proxy.edge.listeners import Listener
from proxy.edge.listening import bind_bootstrap
from proxy.edge.passing import Passing
from proxy.edge.shared_listener import SharedListener
from proxy.owners.map import OwnersMap, Share
from proxy.runtime import logs, loop
from proxy.runtime.tasks import every, on_loop_error, on_signal
from proxy.usage.records import Columns
from proxy.worker import Worker
from proxy.workers.channel import Channel
from proxy.workers.ports import TO_WORKER, PortsOfSupervisor
from quotas.policy import Policy

log = structlog.get_logger("sluice.worker")

_OF_THE_SUPERVISOR: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ALIVE_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class InForce:
    """Everything that a worker begins with."""

    settings: Settings
    mode: Mode
    answers_clients: bool
    """Whether the supervisor answers quota requests."""
    policy: Policy
    part_otherwise: float
    """The part of limits of the whole cluster that it has until it is given shares."""
    owners: OwnersMap | None
    fenced: bool
    placed: Mapping[int, int]
    """Node id → worker, for the brokers of this instance."""
    known: Sequence[KnownBrokers]


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a worker that the supervisor asks for every second."""

    brokers: list[KnownBrokers]
    """The brokers that answers have named."""
    cpu_s: float
    load: dict[int, float]
    """As ``Worker.load``."""


class WorkerProcess:
    """Does what the supervisor calls for, and serves on when that has ended, with what it has.

    Calls are methods of this class, or of its ``Worker``.
    """

    def __init__(self, calls: socket.socket, ports: socket.socket) -> None:
        self._calls = calls
        self._ports = PortsOfSupervisor(ports)
        self._channel = Channel(self._answer)
        self._begun = asyncio.Event()
        self._told_to_stop = asyncio.Event()

    async def run(self) -> int:
        """Run to the end; return the exit status."""
        asyncio.get_running_loop().set_exception_handler(on_loop_error)
        for number in _OF_THE_SUPERVISOR:  # it acts for all; a terminal sends them to every process
            signal.signal(number, signal.SIG_IGN)
        on_signal(signal.SIGTERM, "stop", self._told_to_stop.set)
        await self._channel.open(self._calls)
        await self._channel.serve()
        if self._begun.is_set():
            await self._without_supervisor()
        return 0

    async def _without_supervisor(self) -> None:
        """Serve on until SIGTERM; not in a group of instances, as others own the brokers within a second."""
        owners = self._settings.owners
        if owners is None or owners.group is None:
            log.error("the supervisor has ended: serving on until SIGTERM", fix="restart the service")
            await self._told_to_stop.wait()
        else:
            log.error("the supervisor has ended, and others own its brokers: stopping", fix="restart the service")
        await self._worker.drain(self._settings.drain.timeout_s)
        await self._worker.stop()

    async def _answer(self, name: str, arguments: tuple[Any, ...]) -> object:
        if name != "begin":
            await self._begun.wait()
        answer = getattr(self if hasattr(self, name) else self._worker, name)(*arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def begin(self, number: int, in_force: InForce) -> int:
        """Begin to serve as worker ``number``; return the limit of connections. Raises as ``Worker.start``."""
        logs.say_worker(number)
        self._number, self._settings = number, share_of_limits(in_force.settings)
        ask = self._ask if in_force.answers_clients else None
        self._worker = Worker(self._settings, self._ports.bind, ask, self._share(in_force.placed))
        self._worker.at_hosts = self._at_hosts()
        self.own(in_force.owners, in_force.fenced, in_force.placed)
        await self._worker.apply(in_force.policy)
        await self._worker.set_mode(in_force.mode)
        await self._worker.share([{}], in_force.part_otherwise)
        bootstrap = {each.name: bind_bootstrap(each, self._ports.bind) for each in self._settings.listeners}
        limit = await self._worker.start(bootstrap, in_force.known)
        gc.collect()
        gc.freeze()  # as the supervisor does
        every(_ALIVE_EVERY_S, self._ports.tell_alive, "tell that a worker is alive")
        self._begun.set()
        return limit

    def own(self, in_force: OwnersMap | None, fenced: bool, placed: Mapping[int, int]) -> None:
        """Put owners in force, as ``Worker.own``, and the places of brokers at workers."""
        self._worker.own(in_force, fenced, self._share(placed))

    async def look(self) -> Look:
        """Return what the supervisor looks at every second."""
        return Look(await self._worker.named_brokers(), sum(os.times()[:2]), dict(self._worker.load))

    async def take_usage(self) -> list[Columns]:
        """Return the rows of usage records since the last call."""
        return [columns async for columns, _ in self._worker.take_usage()]

    async def stop(self) -> int:
        """Stop, as ``Worker.stop``; the process ends when the channel is closed."""
        self._begun.clear()
        return await self._worker.stop()

    def _at_hosts(self) -> Callable[..., Listener]:
        """Return the class of listeners whose port all workers share."""
        if all(each.broker_host is None for each in self._settings.listeners):
            return Listener
        channels = [self._ports.bind(TO_WORKER, number) for number in range(self._settings.workers)]
        unsorted = slots_of(self._settings, capacity(self._settings, raise_limit()).unsorted)
        return partial(SharedListener, Passing(self._number, channels), unsorted)

    def _share(self, placed: Mapping[int, int]) -> Share:
        return Share(self._number, self._settings.workers, placed)

    async def _ask(self, frame: bytes, user: str, client_id: str, peer: str) -> bytes:
        answer: bytes = await self._channel.call("ask", frame, user, client_id, peer)
        return answer


def share_of_limits(settings: Settings) -> Settings:
    """Return the settings of one worker: limits of connections and accept rates are divided."""

    def part(limits: Any) -> Any:
        divided = {name: getattr(limits, name) for name in ("connections", "connection_rate")}
        return limits.model_copy(
            update={name: ceil(each / settings.workers) for name, each in divided.items() if each is not None}
        )

    listeners = tuple(each.model_copy(update={"limits": part(each.limits)}) for each in settings.listeners)
    return settings.model_copy(update={"limits": part(settings.limits), "listeners": listeners})


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
