"""The rows of one worker, read from its counters, sessions and meters; nothing of them is changed.

They are read in slices, and put in order by a thread: 100,000 clients never hold the event loop.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import add
from typing import Final

from config.units import without_brackets
from proxy.edge.doors import ConnectionGate
from proxy.edge.listeners import Listener
from proxy.edge.routes import Routes
from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.tasks import SharedWork, in_slices
from proxy.session.session import Session
from proxy.session.throttling import Throttling
from proxy.state.paging import Query, first, matching
from proxy.state.resources import RESOURCES
from proxy.state.rows import (
    BrokerRow,
    ClientRow,
    ConnectionRow,
    Moment,
    Page,
    ThrottledRow,
    UsageRow,
    WaitsFor,
    WorkerRow,
)
from proxy.usage.lately import NOW_MS
from proxy.usage.meter import ClientNames, Meter
from proxy.usage.metering import Metering
from quotas.connections import KIND as CONNECTIONS
from quotas.counted import CLUSTER
from quotas.engine import Bound, CounterState, Engine
from quotas.entities import ANONYMOUS

MOST_PEERS: Final = 10
_MOST_SHARE: Final = 0.99
"""The throttled share up to which demand is estimated by it."""


@dataclass(slots=True)
class _ThrottledCounter:
    """A counter that holds clients now, or in shadow would."""

    bound: Bound
    until_ms: int
    mode: str
    waiting: int
    is_shadow_limit: bool = False
    listeners: set[str] = field(default_factory=set)
    peers: list[str] = field(default_factory=list)
    """Connections that are muted, or wait."""
    others: list[str] = field(default_factory=list)
    """Other connections of its clients."""
    share: float = 0.0
    """The largest part of the last minute that one of them was throttled."""

    def row(self, now_ms: int) -> ThrottledRow | None:
        """Return its row; None if its limit is gone."""
        state = self.bound.usage(now_ms)
        if state is None:
            return None
        limit, ratio = state.limit, state.ratio
        if self.is_shadow_limit:
            limit = state.shadow_limit
            ratio = state.rate / limit if limit else None
        peers = self.peers or self.others
        return ThrottledRow(
            kind=state.kind.value,
            user=state.user or None,
            client_id=state.client_id or None,
            broker=_known(state.broker),
            listener=next(iter(self.listeners)) if len(self.listeners) == 1 else None,
            rule=state.entity.describe(),
            limit=limit,
            used=state.rate,
            ratio=ratio,
            wanted=self._wanted(state.rate),
            owed_ms=max(self.until_ms - now_ms, 0),
            waiting=self.waiting,
            until=_moment(self.until_ms, now_ms),
            peers=tuple(peers[:MOST_PEERS]),
            more_peers=max(len(peers) - MOST_PEERS, 0),
            mode=self.mode,
        )

    def _wanted(self, rate: float) -> float:
        """Estimate the demand: the rate while it was not throttled, and at least what is used and waits now."""
        if self.mode == "shadow":
            return rate
        queue = self.bound.queue
        waits = queue.cost / (self.bound.window.keep_ms / 1000) if queue else 0.0
        return max(rate + waits, rate / (1 - min(self.share, _MOST_SHARE)))


@dataclass(slots=True)
class _Client:
    """A client's meters at one listener, added up over brokers."""

    connections: int = 0
    is_throttled: bool = False
    rates: tuple[float, ...] = (0.0, 0.0)
    share: float = 0.0
    nearest: CounterState | None = None
    """The state of its counter nearest to the limit."""

    def row(self, names: ClientNames) -> ClientRow:
        of = self.nearest
        return ClientRow(
            listener=names.listener,
            user=names.user,
            client_id=names.client_id or None,
            connections=self.connections,
            is_throttled=self.is_throttled,
            bytes_in_per_s=self.rates[0],
            bytes_out_per_s=self.rates[1],
            kind=of and of.kind.value,
            broker=of and _known(of.broker),
            rule=of and of.entity.describe(),
            used=of and of.rate,
            limit=of and of.limit,
            ratio=of and of.ratio,
            throttled_share_1m=self.share,
        )


class StateOfWorker:
    """Reads the rows of a worker, one request at a time."""

    def __init__(
        self,
        engine: Engine,
        throttling: Throttling,
        metering: Metering,
        gate: ConnectionGate,
        listeners: Sequence[Listener],
        routes: Routes,
        owner_of: Callable[[int], str | None],
    ) -> None:
        """``owner_of`` returns the instance that owns a broker, if there are several."""
        self._engine = engine
        self._throttling = throttling
        self._metering = metering
        self._gate = gate
        self._listeners = listeners
        self._routes = routes
        self._owner_of = owner_of
        self._lock = asyncio.Lock()
        self._under_way: dict[tuple[object, ...], SharedWork[Sequence[object]]] = {}
        """Rows that are read now, by what they are of: the page asks for the same in two orders at once."""
        self._rows: Mapping[str, Callable[[Query], Awaitable[Sequence[object]]]] = {
            "throttled": self._throttled,
            "clients": self._clients,
            "connections": self._connections,
            "brokers": self._brokers,
            "workers": self._workers,
            "usage": self._usage,
        }

    async def page(self, resource: str, query: Query) -> Page:
        """Return the first rows of a resource that match, up to the end of the page."""
        wanted = resource, query.q, *query.filters.items()
        work = self._under_way.get(wanted)
        if work is None:
            work = self._under_way[wanted] = SharedWork(self._made(resource, query))
        try:
            rows = await work.result()
        finally:
            if self._under_way.get(wanted) is work:
                del self._under_way[wanted]
        return await asyncio.to_thread(first, rows, query, RESOURCES[resource].row)

    async def _made(self, resource: str, query: Query) -> Sequence[object]:
        async with self._lock:
            return await self._rows[resource](query)

    def _sessions(self) -> Iterator[tuple[Listener, Session]]:
        for listener in self._listeners:
            for session in list(listener.sessions):
                if not session.closed:
                    yield listener, session

    # ------------------------------------------------------------------------------------------ who is throttled

    async def _throttled(self, _: Query) -> list[ThrottledRow]:
        now = now_ms()
        held = {(id(each.bound), False): each for each in await in_slices(self._in_debt(now)) if each is not None}
        for bound, is_shadow_limit, until_ms, waiting in self._throttling.counts.simulated(now - NOW_MS):
            each = _ThrottledCounter(bound, until_ms, "shadow", waiting, is_shadow_limit=is_shadow_limit)
            held[id(bound), is_shadow_limit] = each
        by_names: dict[tuple[str, str, int], list[_ThrottledCounter]] = {}
        for each in held.values():
            by_names.setdefault((each.bound.user, each.bound.client_id, each.bound.broker), []).append(each)
        await in_slices(self._add_connection(held, by_names, *each, now) for each in self._sessions())
        rows = await in_slices(chain((each.row(now) for each in held.values()), self._addresses(now)))
        return [each for each in rows if each is not None]

    def _in_debt(self, now: int) -> Iterator[_ThrottledCounter | None]:
        for bound in self._engine.in_debt(now, now - NOW_MS) if self._throttling.enforces else ():
            if bound is None:
                yield None
            else:
                owed_ms = bound.owed_ms(now)
                until_ms = now + owed_ms if owed_ms else min(bound.until_ms, now)
                yield _ThrottledCounter(bound, until_ms, "enforce", len(bound.queue or ()))

    @staticmethod
    def _add_connection(
        held: dict[tuple[int, bool], _ThrottledCounter],
        by_names: Mapping[tuple[str, str, int], Sequence[_ThrottledCounter]],
        listener: Listener,
        session: Session,
        now: int,
    ) -> None:
        """Add the connection to the counter that holds it, or to those that it is charged to by its names."""
        account = session.identity.account
        holder = session.holder(now)
        if holder is not None:
            bound, until_ms = holder
            each = held.get((id(bound), False)) or _ThrottledCounter(bound, now, "enforce", len(bound.queue or ()))
            held[id(bound), False] = each
            each.until_ms = max(each.until_ms, until_ms)
            each.peers.append(session.peer)
            each.listeners.add(listener.name)
            each.share = max(each.share, account.meter.throttled_share(now))
        elif by_names:
            user, client_id = account.key.user, account.key.client_id
            for names in {(user, client_id), (user, ""), ("", client_id)}:
                for broker in (account.key.broker, CLUSTER):
                    for each in by_names.get((*names, broker), ()):
                        each.others.append(session.peer)
                        each.listeners.add(listener.name)
                        each.share = max(each.share, account.meter.throttled_share(now))

    def _addresses(self, now: int) -> Iterator[ThrottledRow | None]:
        ends: dict[tuple[str, int | None], list[int]] = {}
        for ip, broker, end_ms in self._gate.held:
            ends.setdefault((ip, broker), []).append(end_ms)
        for each in self._gate.usage_of_addresses() if self._throttling.mode != "off" else ():
            waiting = ends.get((each.ip, each.broker), ())
            if not waiting and each.rate <= each.limit:
                yield None
                continue
            until_ms = max(waiting, default=now)
            yield ThrottledRow(
                kind=CONNECTIONS.value,
                user=None,
                client_id=None,
                broker=each.broker,
                listener=None,
                rule=each.entity.describe(),
                limit=each.limit,
                used=each.rate,
                ratio=each.rate / each.limit if each.limit else None,
                wanted=each.rate + len(waiting),  # each is held for up to a second
                owed_ms=max(until_ms - now, 0),
                waiting=len(waiting),
                until=_moment(until_ms, now),
                peers=(each.ip,),
                more_peers=0,
                mode="enforce" if self._throttling.enforces else "shadow",
            )

    # ------------------------------------------------------------------------------------------------- the others

    async def _clients(self, query: Query) -> list[ClientRow]:
        now = now_ms()
        accepts = matching(query, ClientNames)
        clients: dict[ClientNames, _Client] = {}

        def add_all() -> Iterator[None]:
            for meter in self._metering.clients:
                if accepts(meter.key.client):
                    self._add(clients.setdefault(meter.key.client, _Client()), meter, now)
                yield

        await in_slices(add_all())
        return await in_slices(each.row(names) for names, each in clients.items())

    def _add(self, client: _Client, meter: Meter, now: int) -> None:
        client.connections += meter.connections
        client.is_throttled = client.is_throttled or meter.is_throttled(now)
        client.rates = tuple(map(add, client.rates, self._metering.rates(meter, now)))
        client.share = max(client.share, meter.throttled_share(now))
        account = self._metering.account(meter.key)
        nearest = None if account is None else account.nearest(now)
        if nearest is not None and (client.nearest is None or (nearest.ratio or 0) > (client.nearest.ratio or 0)):
            client.nearest = nearest

    async def _connections(self, query: Query) -> list[ConnectionRow]:
        now, peer = now_ms(), query.filters.get("peer")
        rows = await in_slices(
            self._connection(listener, session, now) if peer in (None, without_brackets(session.peer)) else None
            for listener, session in self._sessions()
        )
        return [each for each in rows if each is not None]

    @staticmethod
    def _connection(listener: Listener, session: Session, now: int) -> ConnectionRow:
        key, holder, waits_for = session.identity.account.key, session.holder(now), None
        user, sasl = session.identity.user, session.sasl
        if holder is not None:
            bound, until_ms = holder
            rule = None if bound.rule is None else bound.rule.describe()
            waits_for = WaitsFor(bound.kind.value, rule, max(until_ms - now, 0))
        return ConnectionRow(
            peer=session.peer,
            listener=listener.name,
            broker=_known(key.broker),
            user=user,
            authenticated=sasl.authenticated or user != ANONYMOUS,
            mechanism=sasl.mechanism,
            client_id=key.client_id or None,
            connected_at=_moment(session.connected_ms, now),
            waits_for=waits_for,
        )

    async def _brokers(self, _: Query) -> list[BrokerRow]:
        brokers = await in_slices(session.identity.account.key.broker for _, session in self._sessions())
        connections, reachable = Counter(brokers), self._routes.reachable()
        rows = {}
        for cluster in self._routes.clusters:
            for node_id, each in cluster.brokers.items():
                rows[node_id] = BrokerRow(
                    node_id=node_id,
                    host=each.host,
                    port=each.port,
                    is_reachable=reachable[node_id],
                    owner=self._owner_of(node_id),
                    load_ms_per_s=self._metering.load.get(node_id),
                    connections=connections[node_id],
                    error=None if each.refused is None else each.refused.text,
                )
        return list(rows.values())

    async def _usage(self, _: Query) -> list[UsageRow]:
        return await in_slices(
            UsageRow(names.user, names.client_id or None, names.listener, bytes_per_s, points)
            for names, bytes_per_s, points in self._metering.history
        )

    async def _workers(self, _: Query) -> list[WorkerRow]:
        return [WorkerRow(None, True, 0, sum(os.times()[:2]), sum(len(each.sessions) for each in self._listeners))]


def _known(broker: int) -> int | None:
    return broker if broker >= 0 else None


def _moment(at_ms: int, now: int) -> Moment:
    return Moment(wall_s() + (at_ms - now) / 1000)
