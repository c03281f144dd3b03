"""The worker: listeners, sessions, the engine, throttling and meters on one event loop.

It exchanges only plain data, which can be pickled, and listening sockets with the supervisor: it may run in a process
of its own (``proxy.workers``). It reads no store, serves no HTTP and ships nothing.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final

import structlog

from config.settings import Listener as ListenerSettings
from config.settings import Settings
from protocol.api_versions import advertised_limits
from protocol.client_quotas import ALTER, DESCRIBE
from protocol.produce_topics import MOST_VERSION
from proxy.brokers.topic_partitions import TopicPartitions
from proxy.contract import InForce, Report, at_start
from proxy.edge.arriving import LATE_AT_ONCE, Admission
from proxy.edge.connection_slots import capacity, raise_limit, slots_of
from proxy.edge.doors import MOST_OF_ADDRESS, ConnectionGate, HeldConnections, rates_of
from proxy.edge.listeners import Listener
from proxy.edge.listening import Bind, bind_bootstrap
from proxy.edge.logins import Logins
from proxy.edge.memory import MemoryCeiling
from proxy.edge.open_sessions import SessionReaper, drain, find
from proxy.edge.quota_requests import Ask, QuotaRequests
from proxy.edge.routes import Routes
from proxy.edge.sorter import Passing
from proxy.edge.stats import Rejections, Stats
from proxy.edge.tls import ignore_undecodable_names
from proxy.owners.map import OwnersInForce, Placement, owners_of
from proxy.runtime import faults, logs
from proxy.runtime.clock import now_ms
from proxy.runtime.faults import contained
from proxy.runtime.files import FileWatch
from proxy.runtime.loop import watch_lag
from proxy.runtime.tasks import AFTER_FAULT_S, CallQueue, attempt, every, in_slices, later, spawn
from proxy.session.serving import Served, requests_by_api, serve
from proxy.session.session import Session
from proxy.session.throttling import Alarms, Throttling
from proxy.session.worker_state import WorkerState
from proxy.snapshot import WorkerSnapshot
from proxy.state.of_worker import StateOfWorker
from proxy.state.paging import Query
from proxy.state.rows import Page
from proxy.usage.metering import Metering, protected_topics
from proxy.usage.records import Columns
from proxy.usage.request_costs import RequestCosts
from proxy.usage.throttle_counts import ThrottleEvents
from quotas.engine import Engine, Window
from quotas.exemptions import Exemptions
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.shares import told

log = structlog.get_logger("sluice")

_TIDY_EVERY_S: Final = 1.0
_CLOSE_S: Final = 5.0
"""How long connections that an operator closes have for their last answers."""
_BIND_AGAIN_S: Final = 10.0
"""Interval between attempts to bind ports that were in use."""


class Worker:
    """Serves clients as ``in_force`` says (``Processes``). ``bind`` opens sockets for the ports of brokers as they are
    found. ``ask`` answers quota requests, which else are forwarded. With several workers, it is ``number``, and shares
    the ports of listeners with host names for brokers.
    """

    def __init__(
        self,
        settings: Settings,
        bind: Bind,
        ask: Ask | None = None,
        number: int | None = None,
        passing: Passing | None = None,
    ) -> None:
        self._settings = settings
        self.in_force = at_start(settings, answers_clients=ask is not None)
        self._bind = bind
        self._number = number
        self._passing = passing
        self._stats = Stats()
        self._rejections = Rejections(self._stats)
        self._logins = Logins(self._stats)
        quotas = settings.quotas
        self._engine = Engine(
            Policy(),
            Window(quotas.window.samples, quotas.window.size_ms),
            controller_window=Window(quotas.controller_window.samples, quotas.controller_window.size_ms),
        )
        self._throttling = Throttling(
            mode=quotas.mode,
            window_ms=quotas.window.size_ms,
            max_delay_ms=quotas.max_delay_ms,
            max_hold_ms=quotas.max_hold_ms,
            call_later=_release_later,
            clock=now_ms,
            events=ThrottleEvents() if settings.log.throttles else None,
        )
        exemptions = Exemptions(quotas.exempt.users, quotas.exempt.client_ids, quotas.exempt.networks)
        self._metering = Metering(settings.usage, self._engine, exemptions)
        rates, addresses = rates_of(settings), self._metering.addresses
        self._gate = ConnectionGate(rates, self._throttling, self._stats, now_ms, addresses)
        is_alone = settings.owners is None and number is None
        self._owners: OwnersInForce | None = None if is_alone else owners_of(settings.owners)
        self._alarms = Alarms(_release_later, now_ms, LATE_AT_ONCE)
        self._turned_away = HeldConnections(self._alarms.add, MOST_OF_ADDRESS)
        self._connections_limit = 0
        self._is_closed = False
        self._listeners: list[Listener] = []
        self._memory = MemoryCeiling(settings.memory_ceiling_bytes, self._sessions)
        self._routes = Routes(settings, self._rejections.count_refused)
        self._state = self._state_of_sessions(ask)
        self._rows = StateOfWorker(
            self._engine,
            self._throttling,
            self._metering,
            self._gate,
            self._listeners,
            self._routes,
            lambda node_id: None if self._owners is None else self._owners.owner(node_id) or None,
        )

    # ------------------------------------------------------------------------------------ what the supervisor calls

    @property
    def accepts(self) -> bool:
        """Whether connections are accepted: not before the start, and not from ``drain`` on."""
        return self.in_force.serving and not self._is_closed

    def put(self, in_force: InForce) -> Coroutine[Any, Any, None]:
        before, self.in_force = self.in_force, in_force
        starts = in_force.serving and not before.serving
        if before.policy is not in_force.policy:
            self._engine.apply(in_force.policy, now_ms())
            self._gate.apply(in_force.policy)
            self._state.costs.on = in_force.policy.has(QuotaKind.REQUEST_PERCENTAGE)
            self._throttling.reconsider()
        if before.mode != in_force.mode:
            self._engine.rejudge(now_ms())  # before any release: the hot path checks its generation
            self._throttling.set_mode(in_force.mode, now_ms())
        owners_before, owners_now = ((each.owners, each.fenced, each.placed) for each in (before, in_force))
        if starts or owners_before != owners_now:
            self._put_owners(in_force)
        if starts:
            self._start()
        elif in_force.serving:
            self._readdress(before.settings.listeners, in_force.settings.listeners)
            self._routes.remember(in_force.known)
        return self._put_slowly(before, in_force)

    async def report(self) -> Report:
        clusters = list(self._routes.clusters)
        parts = [(f"cluster {cluster.name}", cluster.why_not_ready) for cluster in clusters]
        parts += [(f"listener {listener.name}", listener.addresses.why_not_ready) for listener in self._listeners]
        parts.append(("memory", self._memory.why_not_ready))
        brokers = [broker for cluster in clusters for broker in cluster.brokers.values()]
        return Report(
            node_ids=tuple(sorted(self._routes.node_ids)),
            named=tuple(cluster.known_by_name for cluster in clusters),
            known=tuple(known for cluster in clusters if (known := cluster.known) is not None),
            load=dict(self._metering.load),
            cpu_s=sum(os.times()[:2]),
            demand=(told(await in_slices(self._engine.demands(now_ms()))),),
            not_ready=tuple(f"{part}: {why}" for part, why in parts if why is not None),
            wrong_brokers=tuple(f"broker {each.node_id}: {each.refused.text}" for each in brokers if each.refused),
            alterations=sum(
                each.requests for table in self._tables for each in table.values() if each.spec.api_key == ALTER
            ),
            fenced=self.in_force.fenced,
        )

    async def page(self, resource: str, query: Query) -> Page:
        return await self._rows.page(resource, query)

    async def usage(self) -> AsyncIterator[tuple[Columns, int | None]]:
        async for columns in self._metering.take_usage():
            yield columns, None

    async def close_connections(self, user: str | None, client_id: str | None, peer: str | None) -> int:
        found = await find(self._listeners, user, client_id, peer)
        spawn(drain(found, _CLOSE_S), "close connections")
        return len(found)

    async def drain(self, timeout_s: float) -> int:
        self._close_listeners()
        sessions = self._sessions()
        log.info("draining", sessions=len(sessions))
        return await drain(sessions, timeout_s)

    async def stop(self) -> int:
        self._close_listeners()
        for session in (sessions := self._sessions()):
            contained("cut a session off", session.abort)
        await asyncio.sleep(0)  # so that they count their ends
        return len(sessions)

    def kill(self) -> None:
        """Do nothing: there are no other processes."""

    async def snapshot(self) -> WorkerSnapshot:
        usage = await in_slices(self._engine.take(now_ms()))
        clients = await self._metering.take_traffic()
        ip_rates = await in_slices(self._gate.usage_of_addresses())
        return WorkerSnapshot(
            **deepcopy({**vars(self._stats), "lag_counts": tuple(self._stats.lag_counts)}),
            usage=usage,
            gone=self._engine.take_gone(),
            clients=clients,
            delay_queue=self._throttling.queue_sizes(),
            unseen_users=self._engine.unseen(),
            fetches_answered_empty=self._throttling.answered_empty,
            requests_dropped=self._throttling.dropped,
            requests=tuple(requests_by_api(self._tables)),
            latencies=self._state.latencies.snapshot(),
            proxy_latencies=self._state.latencies.proxy_snapshot(),
            response_errors=dict(self._state.errors.counts),
            accept_rates=self._gate.usage(),
            ip_rates=ip_rates,
            gssapi_unread=self._logins.unread(),
            brokers=self._routes.reachable(),
            brokers_ignored=sum(cluster.ignored for cluster in self._routes.clusters),
            brokers_without_port={each.name: len(each.addresses.without_port) for each in self._listeners},
            gathered_bytes=self._state.held_requests.bytes,
            connections_limit=self._connections_limit,
            memory_bytes=self._memory.used_bytes,
            memory_limit_bytes=self._memory.ceiling_bytes or 0,
            exempt_request_us=self._state.costs.exempt_us,
            internal_errors=dict(faults.counts),
            log_dropped=logs.dropped(),
        )

    # ------------------------------------------------------------------------------------------------- its parts

    def _start(self) -> None:
        """Open the listeners. Raises OSError and ValueError if TLS files cannot be loaded, an address is in use, or
        descriptors are too few.
        """
        settings = self._settings
        self._connections_limit, self._gate.held.most, self._turned_away.most, _ = capacity(settings, raise_limit())
        self._open_listeners()
        self._routes.remember(self.in_force.known)
        for listener in self._listeners:
            listener.addresses.open_bootstrap(bind_bootstrap(listener.settings, self._bind))
        for cluster in self._routes.clusters:
            cluster.watch()
        every(_TIDY_EVERY_S, self._tidy, "drop what is idle")
        self._memory.watch()
        SessionReaper(self._listeners, settings.limits, self._stats, now_ms).watch()
        watch_lag(self._stats.observe_lag)
        self._metering.watch()
        if self._owners is not None:
            self._metering.watch_load(self._owned)
        for listener in self._listeners:
            every(_BIND_AGAIN_S, listener.addresses.try_again, "bind ports again")
            if listener.tls is not None:
                FileWatch(listener.tls.files, listener.reload_tls).run("watch the certificate")

    async def _put_slowly(self, before: InForce, in_force: InForce) -> None:
        """Put in force what takes time. Queues under a changed limit are served again."""
        of_process, otherwise = in_force.parts, in_force.part_otherwise
        if not before.serving or (before.parts, before.part_otherwise) != (of_process, otherwise):
            parts = of_process[0] if of_process else {}
            for bound in await in_slices(self._engine.share(parts, otherwise, now_ms())):
                if bound is not None and bound.queue:
                    self._throttling.alarm(bound.queue, now_ms())
        if before.certificates_loaded != in_force.certificates_loaded:
            for listener in self._listeners:
                await attempt("load files again", listener.reload_tls)

    def _put_owners(self, in_force: InForce) -> None:
        """Put the owners of brokers in force; sessions at brokers that have moved away are drained."""
        if (owners := self._owners) is None:
            return
        number = self._number
        placement = None if number is None else Placement(number, self._settings.workers, in_force.placed)
        before = self._owned()
        owners.replace(in_force.owners, fenced=in_force.fenced, placement=placement)
        for listener in self._listeners:
            contained("tell the owners of brokers", listener.addresses.tell_owners)
        lost = {node_id for node_id in before if not owners.owns(node_id)}
        moved = [session for session in self._sessions() if session.identity.broker in lost]
        self._let_go(moved, "draining sessions at brokers that others own", brokers=sorted(lost))

    def _readdress(self, before: Sequence[ListenerSettings], now: Sequence[ListenerSettings]) -> None:
        """Apply changed addresses of listeners: ports of brokers open and close, and clients are told the new ones."""
        for listener, old, new in zip(self._listeners, before, now, strict=True):
            if new != old:
                self._let_go(listener.change(new), "draining sessions at closed ports", listener=listener.name)

    def _let_go(self, sessions: Collection[Session], what: str, **fields: object) -> None:
        if sessions:
            log.info(what, sessions=len(sessions), **fields)
            spawn(drain(sessions, self._settings.drain.timeout_s), "drain sessions that are let go")

    def _owned(self) -> set[int]:
        """Return the brokers that are served here, if there are owners."""
        owners = self._owners
        return {node_id for node_id in self._routes.node_ids if owners is not None and owners.owns(node_id)}

    def _open_listeners(self) -> None:
        settings = self._settings
        self._slots = slots_of(settings, self._connections_limit)
        admission = Admission(
            self._slots,
            self._gate,
            settings.limits,
            self._stats,
            self._rejections,
            self._memory,
            self._bind,
            self._alarms,
            self._turned_away,
            self._owners,
            protected_topics(settings.usage),
            self._passing,
        )
        if any(each.broker_host is not None for each in settings.listeners):
            ignore_undecodable_names()
        for each in self.in_force.settings.listeners:
            view = self._routes.of(each)
            sasl, accounts = self._logins.rules_of(each, view), self._metering.accounts_of(each.name)
            listener = Listener(each, view.cluster, self._state, sasl, accounts, admission)
            view.listeners.append(listener)
            self._listeners.append(listener)

    def _state_of_sessions(self, ask: Ask | None) -> WorkerState:
        settings, limits, quotas = self._settings, self._settings.limits, self._settings.quotas
        advertised = advertised_limits(
            fetch_max_version=settings.kafka.fetch_max_version,
            produce_max_version=MOST_VERSION if protected_topics(settings.usage) else None,
        )
        answerers = {} if ask is None else dict.fromkeys((DESCRIBE, ALTER), QuotaRequests(ask, quotas.admins))
        served, served_before_authentication = (
            serve(advertised, quotas.response, authenticated=each, answered=answerers) for each in (True, False)
        )
        return WorkerState(
            engine=self._engine,
            throttling=self._throttling,
            served=served,
            served_before_authentication=served_before_authentication,
            advertised=advertised,
            request_limit=limits.request_bytes,
            unauthenticated_request_limit=limits.request_before_authentication_bytes,
            response_limit=limits.response_bytes,
            find_coordinator_limit=limits.find_coordinator_bytes,
            gathered_limit=limits.gathered_bytes,
            mutations_limit=limits.mutations_bytes,
            clock=now_ms,
            on_rejected=lambda side, error, peer, client_id: self._rejections.count(
                side, error, peer, now_ms(), client_id=client_id
            ),
            later=CallQueue(partial(later, 0.0, "a turn")).later,
            partitions=TopicPartitions(lambda: (each for each in self._routes.clusters if each.can_ask), now_ms),
            answerers=answerers,
            costs=RequestCosts(settings.request_costs),
        )

    @property
    def _tables(self) -> tuple[dict[int, Served], ...]:
        return self._state.served, self._state.served_before_authentication

    def _sessions(self) -> list[Session]:
        return [session for listener in self._listeners for session in listener.sessions]

    def _close_listeners(self) -> None:
        self._is_closed = True
        for listener in self._listeners:
            contained("close a listener", listener.close)
        self._gate.held.close()
        self._turned_away.close()

    def _tidy(self) -> None:
        now = now_ms()
        self._throttling.tidy(now)
        self._engine.expire(now)
        self._gate.tidy(now)
        self._slots.tidy(now / 1000)
        self._memory.tidy()
        self._rejections.flush(now)
        self._logins.flush(now)
        logs.flush()


def _release_later(delay_s: float, release: Callable[[], None]) -> asyncio.TimerHandle:
    """Set the timer of a delay queue, again after a failure: without it, muted connections would stay muted."""
    return later(delay_s, "delay queue", release, otherwise=partial(_release_later, AFTER_FAULT_S, release))
