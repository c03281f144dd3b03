"""Several workers as one: the methods of ``Worker``, each of which reaches all of them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from config.settings import Listener, Mode, Settings
from proxy.brokers.known_brokers import KnownBroker, KnownBrokers
from proxy.edge.listening import Bind
from proxy.edge.quota_requests import Ask
from proxy.edge.stats import DrainResult, WorkerSnapshot, WorkerState
from proxy.edge.whoami import Identity
from proxy.owners.assignment import Drift, share_out
from proxy.owners.map import OwnersMap, owners_of
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import attempt, spawn
from proxy.state.paging import Query, cut
from proxy.state.rows import BrokerRow, Page, WorkerRow
from proxy.usage.records import Columns
from proxy.worker import Worker
from proxy.workers.channel import GoneError
from proxy.workers.child import Child, Process, new_process
from proxy.workers.ports import Ports
from proxy.workers.process import InForce, Look
from proxy.workers.sums import Sums
from quotas.counted import CounterKey
from quotas.policy import Policy, PolicyChange
from quotas.shares import Demand

_LOOK_EVERY_S: Final = 1.0
_EVERYTHING: Final = 1_000_000


class Workers:
    """``settings.workers`` processes between ``start`` and ``end``. A process that ends is started again, with
    everything that is in force by then.
    """

    def __init__(self, settings: Settings, bind: Bind, ask: Ask | None = None) -> None:
        self._ask = ask
        self._look_now = asyncio.Event()
        self._ports = Ports(bind, self._look_now.set)
        self._owners = owners_of(settings.owners)
        """The owners as the whole instance knows them."""
        self._idle = Worker(settings, bind)
        """It never serves: it says what a new policy changes, and what a worker counts that serves nobody."""
        self._in_force = InForce(
            settings,
            settings.quotas.mode,
            answers_clients=ask is not None,
            policy=Policy(),
            part_otherwise=1 / settings.workers,
            owners=self._owners.in_force,
            fenced=False,
            placed={},
            known=(),
        )
        self._load: dict[int, float] = {}
        """CPU ms a second by broker, as its worker says."""
        self._drift = Drift()
        self._shared_by: dict[str, float] = {}
        """The load of each worker, by which brokers were shared out."""
        self._sums = Sums()
        self._looking: asyncio.Task[None] | None = None
        self._spare: asyncio.Task[Process] | None = None
        """A process in reserve: a new one has to load its modules for about a second."""
        self._children = [
            Child(number, self._ports, self._take, self._begin_with, self._answer, self._sums.ended)
            for number in range(settings.workers)
        ]

    async def start(self, bootstrap: Mapping[str, Sequence[Any]], known: Sequence[KnownBrokers] = ()) -> int:
        """Start all processes; return the limit of connections of all together. Arguments, and what is raised, as of
        ``Worker.start``.
        """
        for listener in self._in_force.settings.listeners:
            self._ports.hold((listener.bind.host, listener.bind.port), bootstrap[listener.name])
        self._in_force = replace(self._in_force, known=known)
        self._place()
        limits = await asyncio.gather(*(each.start() for each in self._children), return_exceptions=True)
        for limit in limits:
            if isinstance(limit, BaseException):
                raise limit
        self._looking = spawn(self._look_after_them(), "look after the workers")
        return sum(limit for limit in limits if isinstance(limit, int))

    async def stop(self) -> int:
        """Stop accepting, and cut off all sessions; return their number."""
        self._stop_accepting()
        return int(sum((await self._all("stop")).values()))

    async def end(self) -> None:
        """End all processes."""
        self._stop_accepting()
        if self._looking is not None:  # until now: one that hangs while it drains is killed
            self._looking.cancel()
        await asyncio.gather(*(each.end() for each in self._children))
        if self._spare is not None:
            with suppress(OSError):  # noted when it failed
                await (await self._spare).end()

    # ------------------------------------------------------------------------------------------------- for all alike

    async def apply(self, policy: Policy) -> PolicyChange:
        self._in_force = replace(self._in_force, policy=policy)
        change = await self._idle.apply(policy)
        await self._all("apply", policy)
        return change

    async def demands(self) -> list[Mapping[CounterKey, Demand]]:
        """Return the demand of each worker for limits of the whole cluster."""
        said = await self._all("demands")
        return [said[each.number][0] if each.number in said else {} for each in self._children]

    async def share(self, parts: Sequence[Mapping[CounterKey, float]], otherwise: float) -> None:
        """Put the shares of each worker in force, as ``Worker.share``."""
        if otherwise == self._in_force.part_otherwise and not any(parts):
            return
        self._in_force = replace(self._in_force, part_otherwise=otherwise)
        given = zip(self._children, parts, strict=True)
        await _answers(
            [child.channel.call("share", [part], otherwise) for child, part in given if child.channel is not None]
        )

    async def set_mode(self, mode: Mode) -> None:
        self._in_force = replace(self._in_force, mode=mode)
        await self._all("set_mode", mode)

    async def reload_certificates(self) -> None:
        await self._all("reload_certificates")

    async def readdress(self, listeners: Sequence[Listener]) -> None:
        changed = {each.name: each for each in listeners}
        settings = self._in_force.settings
        kept = tuple(changed.get(each.name, each) for each in settings.listeners)
        self._in_force = replace(self._in_force, settings=settings.model_copy(update={"listeners": kept}))
        await self._all("readdress", listeners)
        await self._look()  # a port of a broker that was just found is not to be closed
        bound = [each.bound(node_id) for each in kept for node_id in self._node_ids()]
        self._ports.keep({(at.host, at.port) for at in (*bound, *(each.bind for each in kept)) if at is not None})

    def own(self, in_force: OwnersMap | None, fenced: bool = False) -> None:
        """Put the owners of brokers in force, as ``Worker.own``; the brokers of this instance are shared out anew."""
        self._owners.replace(in_force, fenced=fenced)
        self._in_force = replace(self._in_force, owners=in_force, fenced=fenced)
        self._place()
        self._tell_owners()

    async def drain(self, timeout_s: float) -> DrainResult:
        self._stop_accepting()
        results = (await self._all("drain", timeout_s)).values()
        return DrainResult(sum(each.sessions for each in results), sum(each.cut_off for each in results))

    # ------------------------------------------------------------------------------------------------- what they say

    async def not_ready(self) -> list[str]:
        if down := [f"worker {each.number}: not running" for each in self._children if not each.up]:
            return down
        return list(dict.fromkeys(reason for each in (await self._all("not_ready")).values() for reason in each))

    async def identify(self, peer: str) -> Identity | None:
        return next((each for each in (await self._all("identify", peer)).values() if each is not None), None)

    async def close_connections(self, user: str | None, client_id: str | None, peer: str | None) -> int:
        return int(sum((await self._all("close_connections", user, client_id, peer)).values()))

    async def node_ids(self) -> list[int]:
        return self._node_ids()

    async def known_brokers(self) -> list[KnownBrokers]:
        return next(iter((await self._all("known_brokers")).values()), [])

    async def alterations(self) -> int:
        return int(sum((await self._all("alterations")).values())) + sum(each.restarts for each in self._children)

    async def take_usage(self) -> AsyncIterator[tuple[Columns, int | None]]:
        for number, taken in (await self._all("take_usage")).items():
            for columns in taken:
                yield columns, number

    async def snapshot(self) -> WorkerSnapshot:
        return self._sums.add(await self._all("snapshot"), await self._idle.snapshot())

    async def state(self, resource: str, query: Query) -> Page:
        """Return the rows of a page of the state API; each has its worker."""
        is_of_few = resource in ("brokers", "workers")  # put together here, before they are cut
        asked = query._replace(offset=0, limit=_EVERYTHING) if is_of_few else query
        pages: dict[int, Page] = await self._all("state", resource, asked)
        rows = [row._replace(worker=number) for number, page in pages.items() for row in page.rows]
        if resource == "brokers":
            rows = self._brokers(rows)
        elif resource == "workers":
            connections = {row.worker: row.connections for row in rows}
            rows = [
                WorkerRow(each.number, each.up, each.restarts, each.cpu_s, connections.get(each.number, 0))
                for each in self._children
            ]
        else:
            return Page(sum(page.total for page in pages.values()), await asyncio.to_thread(cut, rows, query))
        return Page(len(rows), cut(rows, query))

    def _brokers(self, rows: Iterable[BrokerRow]) -> list[BrokerRow]:
        """Return one row for each broker: that of its worker, with the connections at all."""
        found: dict[int, BrokerRow] = {}
        for row in rows:
            before = found.get(row.node_id, row)
            placed = self.placed.get(row.node_id)
            kept = row if row.worker == placed else before
            connections = row.connections + (0 if before is row else before.connections)
            found[row.node_id] = kept._replace(worker=placed, connections=connections)
        return list(found.values())

    @property
    def placed(self) -> Mapping[int, int]:
        """The worker of each broker of this instance."""
        return self._in_force.placed

    @property
    def load(self) -> Mapping[int, float]:
        """CPU ms a second by broker, smoothed over minutes."""
        return self._load

    @property
    def states(self) -> list[WorkerState]:
        """The state of each process."""
        return [WorkerState(each.up, each.restarts, each.cpu_s) for each in self._children]

    # ------------------------------------------------------------------------------------------------- its processes

    async def _take(self) -> Process:
        """Return the process in reserve, or a new one."""
        taken, self._spare = self._spare, None
        return await (new_process(self._in_force.settings.log) if taken is None else taken)

    def _begin_with(self, number: int) -> tuple[int, InForce]:
        return number, self._in_force

    async def _answer(self, name: str, arguments: tuple[Any, ...]) -> object:
        if name != "ask" or self._ask is None:
            raise ValueError(f"the supervisor has no {name}")
        return await self._ask(*arguments)

    async def _all(self, name: str, *arguments: object) -> dict[int, Any]:
        """Call all workers; return the answers by number, without those of workers that have ended: they are started
        again, with what is in force. Raises what any of them raises.
        """
        asked = {
            each.number: each.channel.call(name, *arguments) for each in self._children if each.channel is not None
        }
        answers = zip(asked, await _answers(asked.values()), strict=True)
        return {number: answer for number, answer in answers if not isinstance(answer, GoneError)}

    def _stop_accepting(self) -> None:
        for each in self._children:
            each.retire()
        self._ports.close()

    async def _look_after_them(self) -> None:
        while True:
            await attempt("look after the workers", self._look)
            self._look_now.clear()
            try:
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._look_now.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Ask all whether they are alive, and tell them of brokers that only some know."""
        looks: list[Look | None] = await asyncio.gather(*(each.look() for each in self._children))
        known = merged([self._in_force.known, *(look.brokers for look in looks if look is not None)])
        if known != self._in_force.known:
            self._in_force = replace(self._in_force, known=known)
            await self._all("remember", known)
        for child, look in zip(self._children, looks, strict=True):
            if look is not None:
                self._load.update(
                    {node: load for node, load in look.load.items() if self.placed.get(node) == child.number}
                )
        if self._place():
            self._tell_owners()
        if self._spare is None:
            self._spare = spawn(new_process(self._in_force.settings.log), "start a process")

    def _node_ids(self) -> list[int]:
        return sorted({each.node_id for known in self._in_force.known for each in known.brokers})

    def _place(self) -> bool:
        """Share out the brokers of this instance, if they are others than before or have another load; return whether
        any has moved.
        """
        before, owned = self.placed, {node_id for node_id in self._node_ids() if self._owners.owns(node_id)}
        is_due = self._drift.is_due(self._shared_by, self._load_of_workers(), monotonic_s())
        if owned == before.keys() and not is_due:
            return False
        weights = {str(each.number): 1.0 for each in self._children}
        claims = {node_id: str(number) for node_id, number in before.items() if node_id in owned}
        load = {node_id: self._load[node_id] for node_id in owned if node_id in self._load}
        placed = {node_id: int(name) for node_id, name in share_out(weights, claims, load, owned).items()}
        self._in_force = replace(self._in_force, placed=placed)
        self._shared_by = self._load_of_workers()
        return placed != before

    def _load_of_workers(self) -> dict[str, float]:
        loads = {str(each.number): 0.0 for each in self._children}
        for node_id, number in self.placed.items():
            loads[str(number)] += self._load.get(node_id, 0.0)
        return loads

    def _tell_owners(self) -> None:
        in_force = self._in_force
        spawn(self._all("own", in_force.owners, in_force.fenced, in_force.placed), "tell the owners of brokers")


async def _answers(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return the answers of workers; GoneError: it has ended."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GoneError):
            raise answer
    return answers


def merged(lists: Iterable[Iterable[KnownBrokers]]) -> list[KnownBrokers]:
    """Return the brokers of each route that are in any list; the address in a later one counts."""
    found: dict[tuple[str, ...], dict[int, KnownBroker]] = {}
    ids: dict[tuple[str, ...], str] = {}
    for known in (each for some in lists for each in some):
        found.setdefault(known.bootstrap, {}).update({each.node_id: each for each in known.brokers})
        ids[known.bootstrap] = known.cluster_id or ids.get(known.bootstrap, "")
    return [
        KnownBrokers(bootstrap, ids[bootstrap], tuple(sorted(brokers.values()))) for bootstrap, brokers in found.items()
    ]
