"""The value in force in the worker, or workers, and the answers to questions about them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from config.settings import Mode, Settings
from proxy.brokers.known_brokers import KnownBrokers
from proxy.contract import InForce, Last, Processes, Report, Taken
from proxy.runtime.tasks import spawn
from quotas.counted import CounterKey
from quotas.policy import Policy
from quotas.shares import Demand

if TYPE_CHECKING:
    from proxy.owners.map import OwnersMap


class WorkerControl:
    """Owns the value in force. Until ``start`` it changes here alone; after ``stop``, ``Last`` answers questions."""

    def __init__(self, processes: Processes, in_force: InForce) -> None:
        self._processes = processes
        self._in_force = in_force
        self._serves = False
        self._last: Last | None = None
        self.load: Mapping[int, float] = {}
        """As in the last report."""

    async def start(self, known: Iterable[KnownBrokers]) -> None:
        """Have clients served. Raises OSError and ValueError if that is not possible."""
        self._serves = True
        await self._put(replace(self._in_force, known=tuple(known)))

    async def stop(self) -> Last:
        self._last = Last()
        self._last = last = await self._processes.stop()
        return last

    def _put(self, in_force: InForce) -> Coroutine[Any, Any, None]:
        """Have a value in force: in this process at once, and everywhere once it has been awaited."""
        self._in_force = in_force
        return self._processes.put(in_force) if self._serves and self._last is None else asyncio.sleep(0)

    # ------------------------------------------------------------------------------------------------- who changes it

    async def apply(self, policy: Policy) -> None:
        await self._put(replace(self._in_force, policy=policy))

    async def set_mode(self, mode: Mode) -> None:
        await self._put(replace(self._in_force, mode=mode))

    async def take_settings(self, settings: Settings) -> None:
        """Put changed addresses of listeners in force, and fixed owners."""
        owners = self._in_force.owners
        if settings.owners is not None and settings.owners.fixed is not None:
            from proxy.owners.map import fixed_map

            owners = fixed_map(settings.owners.fixed)
        await self._put(replace(self._in_force, settings=settings, owners=owners))

    async def load_certificates(self) -> None:
        await self._put(replace(self._in_force, certificates_loaded=self._in_force.certificates_loaded + 1))

    def own(self, owners: "OwnersMap | None", fenced: bool) -> None:
        spawn(self._put(replace(self._in_force, owners=owners, fenced=fenced)), "tell the owners of brokers")

    async def share(self, parts: Sequence[Mapping[CounterKey, float]], otherwise: float) -> None:
        await self._put(replace(self._in_force, parts=tuple(parts), part_otherwise=otherwise))

    # ------------------------------------------------------------------------------------------------- who asks

    async def look(self) -> Report:
        report = await self._processes.report()
        self.load = report.load
        return report

    async def demands(self) -> list[Mapping[CounterKey, Demand]]:
        return list((await self.look()).demand)

    async def node_ids(self) -> Sequence[int]:
        return (await self.look()).node_ids

    async def alterations(self) -> int:
        return (await self.look()).alterations

    async def known_brokers(self) -> list[KnownBrokers]:
        return list((await self.look() if self._last is None else self._last).known)

    async def take_usage(self) -> AsyncIterator[Taken]:
        if self._last is None:
            async for taken in self._processes.usage():
                yield taken
            return
        usage, self._last = self._last.usage, replace(self._last, usage=())
        for taken in usage:
            yield taken
