"""The way of a connection from its accept to its broker: one coroutine, that may be refused at each step.

PROXY header, TLS handshake, first request and login share one deadline. The first bytes are peeked at before anything
is spent on a client: plaintext never reaches OpenSSL, and has a cause of its own.
"""

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from config.listener import Listener as ListenerSettings
from config.settings import Limits
from config.units import Address
from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, FrameSplitter
from proxy.edge.arrival import HANDSHAKE, Arrival
from proxy.edge.broker_connector import BrokerConnector
from proxy.edge.connection_slots import ConnectionSlot, ConnectionSlots
from proxy.edge.doors import ConnectionGate, HeldConnections, check_owner
from proxy.edge.kernel import peek
from proxy.edge.listening import Bind
from proxy.edge.memory import MemoryCeiling
from proxy.edge.proxy_protocol import is_header, read_source
from proxy.edge.sorter import Passed, Passing, find_host
from proxy.edge.stats import LeftEarly, Refused, Rejections, Stats
from proxy.edge.tls import HANDSHAKE_RECORD, ListenerTls, why_failed
from proxy.edge.wires import ClientWire
from proxy.runtime.clock import now_ms
from proxy.runtime.tasks import later, spawn
from proxy.session.flow import CLIENT
from proxy.session.policies.login import GSSAPI_TOKEN
from proxy.session.serving import API_VERSIONS_KEY
from proxy.session.session import Session
from proxy.session.throttling import Alarm, Alarms
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Accounts

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

_PEEKED_BYTES: Final = 16
_IN_A_TURN: Final = 8
"""TLS handshakes and sessions begun per turn of the loop, as many as connections are accepted."""
LATE_AT_ONCE: Final = 20
"""Connections closed at their deadline per turn of the loop: each takes some 50 µs."""
_LONGER_THAN_OURS_S: Final = 3600.0
"""The event loop's own handshake timeout, so long that it never fires before the listener's deadline."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits, counters and ports that all listeners of a worker share."""

    slots: ConnectionSlots
    gate: ConnectionGate
    limits: Limits
    stats: Stats
    rejections: Rejections
    memory: MemoryCeiling
    bind: Bind
    alarms: Alarms
    """The deadlines of connections that are not authenticated."""
    turned_away: HeldConnections
    owners: "OwnersInForce | None" = None
    """With several instances: those that own the brokers."""
    protected_topics: frozenset[bytes] = frozenset()
    """Topics that no client may produce to through the proxy."""
    passing: Passing | None = None
    """With several workers: where connections to host names of brokers are passed on."""


class Arriving:
    """The connections of one listener that have no session yet.

    ``hosts``: host names (SNI) → node ids. ``begin`` creates the session.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        admission: Admission,
        accounts: Accounts,
        tls: ListenerTls | None,
        hosts: dict[str, int | None],
        connector: BrokerConnector,
        worker: WorkerState,
        begin: Callable[[Arrival, ClientWire], Session],
    ) -> None:
        self._name = settings.name
        self._shared = admission
        self._load_balancers = settings.proxy_protocol.networks if settings.proxy_protocol is not None else ()
        self._names_broker = settings.broker_host is not None
        """Clients name their broker in TLS (SNI), not by the port."""
        self._accounts = accounts
        self._tls = tls
        self._hosts = hosts
        self._connector = connector
        self._is_request = partial(is_request, worker=worker, authenticated=settings.authentication != "sasl")
        self._begin = begin
        self._pacer = Pacer(_IN_A_TURN)
        self._passing = admission.passing if self._names_broker else None
        self.arriving: dict[Arrival, Alarm] = {}
        """Each with the alarm of its deadline."""

    # ------------------------------------------------------------------------------------------- they come, and go

    def take(self, client: socket.socket, peer: Address, node_id: int | None) -> None:
        """Serve a connection that was accepted at a broker's port, or with None at the bootstrap port."""
        deadline_ms = now_ms() + round(self._shared.limits.authentication_timeout_s * 1000)
        # a load balancer has to send a PROXY header
        names_source = any(ipaddress.ip_address(peer.host) in network for network in self._load_balancers)
        arrival = Arrival(client, peer, node_id, deadline_ms, names_source)
        if node_id is None and not self._names_broker:
            arrival.counted_at = self._connector.next()
        self._start(arrival)

    def take_passed(self, client: socket.socket, message: Passed) -> None:
        """Serve a connection that another worker has accepted, and passed on."""
        arrival = Arrival(client, message.peer, None, message.deadline_ms)
        arrival.passed_host = message.host
        self._start(arrival)

    def dismiss(self, arrival: Arrival, why: Refused | None = None) -> None:
        """Close a connection without a session, if it is one still, because of ``why`` or because the proxy stops."""
        if arrival in self.arriving:
            self._forget(arrival)
            if why is not None:
                self._refuse(arrival, why)
            arrival.task.cancel()

    def stop(self) -> None:
        for arrival in list(self.arriving):
            self.dismiss(arrival)

    def _start(self, arrival: Arrival) -> None:
        """Ask at once what can be asked: who is refused costs no task, and keeps no descriptor until the next turn.

        One whose address or worker is not known yet has a place meanwhile.
        """
        try:
            if self._passing is not None and arrival.passed_host not in self._hosts:
                self._take_place(arrival, self._passing.unsorted)
            elif arrival.names_source:
                self._accept(arrival)
            else:
                self._address_known(arrival)
        except Refused as why:
            self._refuse(arrival, why)
            arrival.release()
            return
        self._shared.stats.sessions[self._name] += 1
        arrival.task = spawn(self._arrive(arrival), "receive a client", partial(self._over, arrival))
        dismiss = partial(self.dismiss, arrival)
        self.arriving[arrival] = self._shared.alarms.add(partial(self._overdue, arrival), dismiss, arrival.deadline_ms)

    def _take_place(self, arrival: Arrival, slots: ConnectionSlots) -> None:
        """Give a connection a place, instead of one that it had before its address was known. Raises Refused."""
        if self._shared.memory.refuses:
            raise Refused(outcome="refused_memory", by_limit=True)
        arrival.free_slot()
        evict = partial(self.dismiss, arrival)
        arrival.slot = slots.enter(arrival.host, arrival.counted_at, arrival.came_s, evict, self._name)

    def _accept(self, arrival: Arrival) -> None:
        """Give a connection a place among those that are served here. Raises Refused."""
        is_first = arrival.slot is None
        self._take_place(arrival, self._shared.slots)
        if is_first:
            self._shared.stats.connections[self._name, "accepted"] += 1

    def _overdue(self, arrival: Arrival, now_ms: int) -> None:  # noqa: ARG002  as alarms call
        said = f"no {arrival.awaited} within {self._shared.limits.authentication_timeout_s:g} s"
        self.dismiss(arrival, Refused(ProtocolError(Cause.AUTHENTICATION_TIMEOUT, said)))

    def _forget(self, arrival: Arrival) -> None:
        if (deadline := self.arriving.pop(arrival, None)) is not None:
            deadline.cancel()

    def _over(self, arrival: Arrival, task: asyncio.Task[None]) -> None:
        """Release a connection whose task has ended, even one cancelled before it began."""
        if arrival.session is None:
            self._forget(arrival)
            self._shared.stats.sessions[self._name] -= 1
        elif task.cancelled() or task.exception() is not None:
            arrival.session.abort()
        arrival.release()

    # ------------------------------------------------------------------------------------------- the way

    async def _arrive(self, arrival: Arrival) -> None:
        try:
            if arrival.admitted_ms is None:
                if self._passing is None:
                    await read_source(arrival)
                elif await self._passes_on(arrival, self._passing):
                    return
                self._address_known(arrival)
            wire = await self._connect(arrival)
            arrival.awaited = "request"
            await wire.first_request()
            await self._pacer.turn()
            if not wire.is_open:
                raise LeftEarly
            if arrival.server_name is not None:
                arrival.node_id = self._hosts.get(arrival.server_name.lower(), arrival.node_id)
            self._request_known(arrival, wire.slot)
            session = self._begin(arrival, wire)
        except (Refused, ProtocolError, OSError) as why:
            self._refuse(arrival, why)
        else:
            self._forget(arrival)
            wire.begin(session)
            if not session.closed:
                await self._connect_to_broker(arrival, wire.slot, session)

    async def _passes_on(self, arrival: Arrival, passing: Passing) -> bool:
        """Whether another worker has the connection now; if not, it is served here, with what is left in its socket:
        also one whose handshake is going to fail. Raises Refused or ProtocolError.

        It counts for the rate of its address, and for limits of connections, at the worker that serves it.
        """
        try:
            if arrival.names_source:
                await read_source(arrival)
                self._take_place(arrival, passing.unsorted)
            arrival.awaited = "TLS handshake"
            host = await find_host(arrival.client, self._hosts)
            node_id, worker = self._hosts.get(host), None
            if arrival.passed_host is None and node_id is not None and self._shared.owners is not None:
                worker = self._shared.owners.other_worker(node_id)
            if worker is not None:
                message = Passed(self._name, host, arrival.peer, arrival.deadline_ms)
                if not await passing.send(worker, arrival.client, message):
                    self._shared.stats.connections[self._name, "broker_unreachable"] += 1
        except (Refused, ProtocolError, asyncio.CancelledError):
            self._shared.stats.connections[self._name, "accepted"] += 1
            raise
        arrival.free_slot()
        return worker is not None

    def _address_known(self, arrival: Arrival) -> None:
        """Ask what depends on the client's address, and on its broker if the port says which. Raises Refused."""
        arrival.is_exempt = self._accounts.exemptions.covers_address(arrival.host)
        arrival.admitted_ms = self._shared.gate.admit(
            self._name, arrival.host, arrival.counted_at, exempt=arrival.is_exempt
        )
        if not self._names_broker:
            self._check_owner(arrival)
        self._accept(arrival)

    def _check_owner(self, arrival: Arrival) -> None:
        shared = self._shared
        check_owner(shared.owners, arrival.host, arrival.node_id, shared.turned_away, shared.gate.clock())

    def _request_known(self, arrival: Arrival, slot: ConnectionSlot) -> None:
        """Ask what depends on the broker that was not known before. Raises Refused."""
        if self._names_broker:
            self._check_owner(arrival)
        if arrival.counted_at is None:
            broker = self._connector.next() if arrival.node_id is None else arrival.node_id
            if broker is not None:
                self._shared.gate.admit(
                    self._name, arrival.host, broker, exempt=arrival.is_exempt, before_ms=arrival.admitted_ms
                )
                self._shared.slots.assign(slot, broker)
                arrival.counted_at = broker
        self._shared.slots.settle(slot)

    async def _connect(self, arrival: Arrival) -> ClientWire:
        """Give the socket to a transport, with TLS if the listener has it."""
        options = {} if self._tls is None else await self._await_handshake(arrival, self._tls)
        assert arrival.slot is not None  # noqa: S101  for mypy: it has its place
        wire = ClientWire(self._is_request, arrival.slot, self._shared.limits.socket_receive_buffer_bytes)
        arrival.wire = wire
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: cast("asyncio.BaseProtocol", wire), arrival.client, **options
            )
        except (OSError, ValueError) as error:  # ValueError: a certificate that ssl cannot show as a dictionary
            if not options:
                raise
            raise why_failed(error, arrival) from error
        return wire

    async def _await_handshake(self, arrival: Arrival, tls: ListenerTls) -> dict[str, Any]:
        """Wait for the first bytes of a TLS handshake, and for its turn; return what the transport is made with."""
        arrival.awaited = "TLS handshake"
        first = await peek(arrival.client, _PEEKED_BYTES)
        if not first:
            raise LeftEarly
        if is_header(first):
            raise ProtocolError(
                Cause.PROXY_PROTOCOL_NOT_ALLOWED, "a PROXY protocol header, which this listener does not allow"
            )
        if not first.startswith(HANDSHAKE_RECORD[: len(first)]):
            raise ProtocolError(Cause.NOT_TLS, "plaintext on a TLS listener: is the client's security.protocol right?")
        await self._pacer.turn()
        HANDSHAKE.set(arrival)
        return {"ssl": tls.context, "ssl_handshake_timeout": _LONGER_THAN_OURS_S}

    async def _connect_to_broker(self, arrival: Arrival, slot: ConnectionSlot, session: Session) -> None:
        is_named = arrival.server_name is not None or not self._names_broker
        if not await self._connector.connect(session, slot, arrival.node_id, arrival.counted_at, is_named=is_named):
            self._shared.stats.connections[self._name, "broker_unreachable"] += 1
            session.close()

    # ------------------------------------------------------------------------------------------- refused

    def _refuse(self, arrival: Arrival, why: Exception) -> None:
        """Count why a connection goes no further, and hold it if the reason says so."""
        if isinstance(why, ProtocolError):
            why = Refused(why)
        elif not isinstance(why, Refused):
            why = LeftEarly()
        self._forget(arrival)
        if why.outcome is not None:
            self._shared.stats.connections[self._name, why.outcome] += 1
        if why.error is not None:
            about = arrival.server_name if why.error.cause is Cause.UNKNOWN_SNI else None
            self._shared.rejections.count(CLIENT, why.error, str(arrival.peer), now_ms(), about=about)
        if why.by_limit:
            self._accounts.refused += 1
        arrival.hold = why.hold


def is_request(begun: bytes, worker: WorkerState, *, authenticated: bool) -> bool:
    """Whether ``begun`` holds the header of a request that is served; False if more bytes are needed.

    Raises ProtocolError if it begins with anything else. On listeners that demand SASL, tokens without a request header
    may come first (GSSAPI of Kafka 0.9).
    """
    limit = worker.request_limit if authenticated else worker.unauthenticated_request_limit
    _, _, heads = FrameSplitter(REQUEST_HEAD, limit).split(begun, 1)
    if not heads:
        return False
    key_version = heads[0][1]
    api_key = key_version >> 16
    begins_gssapi = not authenticated and api_key >> 8 == GSSAPI_TOKEN
    if key_version not in worker.served and api_key != API_VERSIONS_KEY and not begins_gssapi:
        worker.answerer(key_version)
    return True


class Pacer:
    """Lets so many callers pass in each turn of the loop, first come, first served.

    A handshake takes the loop a millisecond, a session a tenth of that. After a restart all clients reconnect at once;
    connected clients must not wait until the last is served.
    """

    def __init__(self, in_a_turn: int) -> None:
        self._in_a_turn = in_a_turn
        self._passed = 0
        """Callers that have passed in this turn."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for this caller's turn: the first ones have theirs at once."""
        if self._passed < self._in_a_turn:
            self._pass()
        else:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _pass(self) -> None:
        if not self._passed:
            later(0.0, "let the next pass", self._let_next_pass, otherwise=self._let_next_pass)
        self._passed += 1

    def _let_next_pass(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < self._in_a_turn:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._pass()
