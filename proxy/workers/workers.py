"""Several workers as one: what has to be in force is brought to all of them, and what they say is put together."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Final, TypeVar, TypeVarTuple

from config.settings import Settings
from proxy.brokers.known_brokers import KnownBrokers
from proxy.contract import InForce, Report, at_start
from proxy.edge.listening import Bind
from proxy.edge.quota_requests import Ask
from proxy.owners.assignment import Drift, place_brokers
from proxy.owners.map import owners_of
from proxy.runtime import faults, logs
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import attempt, spawn
from proxy.snapshot import WorkerSnapshot
from proxy.state.paging import Query, cut, first
from proxy.state.resources import RESOURCES
from proxy.state.rows import BrokerRow, Page, WorkerRow
from proxy.usage.records import Columns
from proxy.worker import Worker
from proxy.workers.channel import GoneError
from proxy.workers.child import Child
from proxy.workers.merging import MERGED, Merge
from proxy.workers.ports import Ports
from proxy.workers.process import usage_of
from proxy.workers.sums import Sums

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LOOK_EVERY_S: Final = 1.0
_ANSWER_S: Final = 1.0
_EVERYTHING: Final = 1_000_000


class Workers:
    """``settings.workers`` processes (``Processes``). One that ends is started again, with the value in force then."""

    def __init__(self, settings: Settings, bind: Bind, ask: Ask | None = None) -> None:
        self.in_force = at_start(settings, answers_clients=ask is not None)
        self._load: dict[int, float] = {}
        self._ask = ask
        self._look_now = asyncio.Event()
        self._ports = Ports(bind, self._look_now.set)
        self._owners = owners_of(settings.owners)
        """The owners as the whole instance knows them."""
        self._drift = Drift()
        self._placed_by: dict[str, float] = {}
        """The load of each worker, by which brokers were placed."""
        self._sums = Sums()
        self._snapshots: dict[int, asyncio.Task[WorkerSnapshot | None]] = {}
        """Snapshots under way, by worker: late ones count in the next sum."""
        self._left: list[tuple[Columns, int | None]] = []
        """Rows of usage records that processes have handed over at their end."""
        self._turn = asyncio.Lock()
        """Held while the workers make a page: each makes one after the other anyway, and to the end, whoever waits."""
        self._looking: asyncio.Task[None] | None = None
        self._children = [
            Child(number, self._ports, self._wanted, self._answer, self._sums.ended)
            for number in range(settings.workers)
        ]

    def put(self, in_force: InForce) -> Coroutine[None, None, None]:
        before, self.in_force = self.in_force, in_force
        self._owners.replace(in_force.owners, fenced=in_force.fenced)
        self._place()
        if in_force.serving and not before.serving:
            return self._start()
        return self._bring() if before.settings is in_force.settings else self._readdress(in_force.settings)

    async def report(self) -> Report:
        answered = await asyncio.gather(*(each.look() for each in self._children))
        fresh = [each.report if is_fresh else None for each, is_fresh in zip(self._children, answered, strict=True)]
        reports = [each.report for each in self._children if each.report is not None]
        self._learn(reports)
        spawn(self._bring(), "look after the workers")
        return Report(
            node_ids=tuple(self._node_ids()),
            named=self.in_force.known,
            known=next((each.known for each in reports), ()),
            load=dict(self._load),
            cpu_s=sum(each.state.cpu_s for each in self._children),
            demand=tuple(part for each in fresh for part in (each.demand if each is not None else ({},))),
            not_ready=tuple(self._not_ready(reports)),
            wrong_brokers=tuple(dict.fromkeys(each for of_one in reports for each in of_one.wrong_brokers)),
            alterations=sum(each.alterations for each in reports) + sum(each.restarts for each in self._children),
            fenced=self.in_force.fenced,
            workers=tuple(each.state for each in self._children),
        )

    async def snapshot(self) -> WorkerSnapshot:
        for each in self._children:
            if each.up and each.number not in self._snapshots:
                self._snapshots[each.number] = spawn(each.ask(Worker.snapshot), "render metrics")
        if awaited := [self._snapshots[each.number] for each in self._children if each.answers]:
            await asyncio.wait(awaited, timeout=_ANSWER_S)
        done = {number: self._snapshots.pop(number) for number, task in list(self._snapshots.items()) if task.done()}
        taken = {number: snapshot for number, task in done.items() if (snapshot := task.result()) is not None}
        own = WorkerSnapshot(internal_errors=dict(faults.counts), log_dropped=logs.dropped())
        return self._sums.add(taken, own)

    async def page(self, resource: str, query: Query) -> Page:
        """Return the rows of a page of the state API; each has its worker, but for clients that are at several."""
        merging: dict[str, Merge] = {**MERGED, "brokers": self._brokers, "workers": self._states}
        merge = merging.get(resource)
        asked = query if merge is None else _everything(query)  # put together here, before they are cut
        await self._turn.acquire()
        asking = spawn(self._all(Worker.page, resource, asked), "ask the workers for a page")
        asking.add_done_callback(lambda _: self._turn.release())
        pages = await asyncio.shield(asking)
        rows = (row._replace(worker=number) for number, page in pages.items() for row in page.rows)
        if merge is None:
            return Page(sum(page.total for page in pages.values()), await asyncio.to_thread(cut, rows, query))
        return await asyncio.to_thread(lambda: first(merge(rows), query, RESOURCES[resource].row))

    async def usage(self) -> AsyncIterator[tuple[Columns, int | None]]:
        left, self._left = self._left, []
        for taken in left:
            yield taken
        for number, of_worker in (await self._all(usage_of)).items():
            for columns in of_worker:
                yield columns, number

    async def close_connections(self, user: str | None, client_id: str | None, peer: str | None) -> int:
        return sum((await self._all(Worker.close_connections, user, client_id, peer)).values())

    async def drain(self, timeout_s: float) -> int:
        self._stop_accepting()
        return sum((await self._all(Worker.drain, timeout_s)).values())

    async def stop(self) -> int:
        self._stop_accepting()
        lasts = await asyncio.gather(*(each.stop() for each in self._children))
        if self._looking is not None:  # until now: one that hangs while it drains is killed
            self._looking.cancel()
        handed_over = {number: last for number, last in enumerate(lasts) if last is not None}
        self._left += [(columns, number) for number, last in handed_over.items() for columns in last.usage]
        return sum(each.cut_off for each in handed_over.values())

    def kill(self) -> None:
        for each in self._children:
            each.kill()

    # ------------------------------------------------------------------------------------------------- its processes

    async def _start(self) -> None:
        started = await asyncio.gather(*(each.start() for each in self._children), return_exceptions=True)
        for error in started:
            if error is not None:
                raise error
        self._looking = spawn(self._look_after_them(), "look after the workers")

    def _wanted(self, number: int) -> InForce:
        """Return what has to be in force in a process: its own parts and limits."""
        in_force = self.in_force
        return replace(in_force, parts=in_force.parts[number : number + 1], settings=in_force.settings.of_one_worker())

    async def _bring(self) -> None:
        """Have everything in force in all processes; those that are starting, or end meanwhile, begin with it."""
        bringing = [each.bring() for each in self._children if each.up]
        for error in await asyncio.gather(*bringing, return_exceptions=True):
            if error is not None and not isinstance(error, GoneError):
                raise error

    async def _readdress(self, settings: Settings) -> None:
        """Have changed addresses in force, and close the ports that nobody uses any more."""
        await self._bring()
        await self.report()  # a port of a broker that was just found is not to be closed
        bound = [each.bound(node_id) for each in settings.listeners for node_id in self._node_ids()]
        wanted = (*bound, *(each.bind for each in settings.listeners))
        self._ports.keep({(at.host, at.port) for at in wanted if at is not None})

    async def _answer(self, asked: tuple[bytes, str, str, str]) -> bytes:
        assert self._ask is not None  # noqa: S101  workers are told whether they may ask
        return await self._ask(*asked)

    async def _all(self, function: Callable[[Worker, *Ts], Awaitable[T | None]], *arguments: *Ts) -> dict[int, T]:
        """Ask all workers; return the answers by number, without those of workers that have ended, and without None.
        Raises what any of them raises.
        """
        asked = {each.number: each.ask(function, *arguments) for each in self._children if each.up}
        answers = zip(asked, await asyncio.gather(*asked.values()), strict=True)
        return {number: answer for number, answer in answers if answer is not None}

    def _stop_accepting(self) -> None:
        for each in self._children:
            each.retire()
        self._ports.close()

    async def _look_after_them(self) -> None:
        while True:
            await attempt("look after the workers", self.report)
            self._look_now.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._look_now.wait()

    # ------------------------------------------------------------------------------------------------- their brokers

    def _node_ids(self) -> list[int]:
        return sorted({each.node_id for known in self.in_force.known for each in known.brokers})

    def _not_ready(self, reports: Iterable[Report]) -> list[str]:
        down = [each for each in self._children if not each.answers]
        if down:
            return [f"worker {each.number}: {'does not answer' if each.up else 'not running'}" for each in down]
        return list(dict.fromkeys(reason for each in reports for reason in each.not_ready))

    def _learn(self, reports: Iterable[Report]) -> None:
        """Learn the brokers that any worker has found, and the load of each at its worker; place them."""
        known = merged([self.in_force.known, *(each.named for each in reports)])
        if known != self.in_force.known:
            self.in_force = replace(self.in_force, known=known)
        for child in self._children:
            load = {} if child.report is None else child.report.load
            self._load.update(
                {node: cost for node, cost in load.items() if self.in_force.placed.get(node) == child.number}
            )
        self._place()

    def _place(self) -> None:
        """Place the brokers of this instance, if they are others than before or have another load."""
        before, owned = self.in_force.placed, {node_id for node_id in self._node_ids() if self._owners.owns(node_id)}
        is_due = self._drift.is_due(self._placed_by, self._load_of_workers(), monotonic_s())
        if owned == before.keys() and not is_due:
            return
        weights = {str(each.number): 1.0 for each in self._children}
        claims = {node_id: str(number) for node_id, number in before.items() if node_id in owned}
        load = {node_id: self._load[node_id] for node_id in owned if node_id in self._load}
        placed = {node_id: int(name) for node_id, name in place_brokers(weights, claims, load, owned).items()}
        self.in_force = replace(self.in_force, placed=placed)
        self._placed_by = self._load_of_workers()

    def _load_of_workers(self) -> dict[str, float]:
        loads = {str(each.number): 0.0 for each in self._children}
        for node_id, number in self.in_force.placed.items():
            loads[str(number)] += self._load.get(node_id, 0.0)
        return loads

    def _states(self, rows: Iterable[WorkerRow]) -> list[WorkerRow]:
        """Return one row for each worker, whether it has answered or not."""
        connections = {row.worker: row.connections for row in rows}
        return [
            WorkerRow(each.number, each.up, each.restarts, each.state.cpu_s, connections.get(each.number, 0))
            for each in self._children
        ]

    def _brokers(self, rows: Iterable[BrokerRow]) -> list[BrokerRow]:
        """Return one row for each broker: that of its worker, with the connections at all."""
        found: dict[int, BrokerRow] = {}
        for row in rows:
            before = found.get(row.node_id, row)
            placed = self.in_force.placed.get(row.node_id)
            kept = row if row.worker == placed else before
            connections = row.connections + (0 if before is row else before.connections)
            found[row.node_id] = kept._replace(worker=placed, connections=connections)
        return list(found.values())


def _everything(query: Query) -> Query:
    """Return a query for all rows that may be needed to put those of a page together."""
    names = {name: value for name, value in query.filters.items() if name in ("user", "client_id", "listener")}
    return Query("", limit=_EVERYTHING, filters=names, q=query.q)


def merged(lists: Iterable[Iterable[KnownBrokers]]) -> tuple[KnownBrokers, ...]:
    """Return the brokers of each route that are in any list; the address in a later one counts."""
    found: dict[tuple[str, ...], KnownBrokers] = {}
    for known in chain.from_iterable(lists):
        before = found.get(known.bootstrap, KnownBrokers(known.bootstrap, "", ()))
        brokers = {each.node_id: each for each in (*before.brokers, *known.brokers)}
        cluster_id = known.cluster_id or before.cluster_id
        found[known.bootstrap] = KnownBrokers(known.bootstrap, cluster_id, tuple(sorted(brokers.values())))
    return tuple(found.values())
