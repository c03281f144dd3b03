"""Listeners: a bootstrap address, and for each broker a port or a host name that clients are told."""

import asyncio
import socket
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from config.settings import Limits
from config.settings import Listener as ListenerSettings
from config.units import Address
from protocol.errors import Cause, ProtocolError
from protocol.locator import Endpoint
from proxy.brokers.cluster import Cluster
from proxy.edge.accepting import Acceptor
from proxy.edge.advertised_addresses import AdvertisedAddresses
from proxy.edge.arrivals import Arrival, Arrivals, LeftEarly
from proxy.edge.broker_connector import BrokerConnector
from proxy.edge.connection_gate import ConnectionGate
from proxy.edge.connection_slots import ConnectionSlots, FullError
from proxy.edge.deadlines import Deadlines
from proxy.edge.first_request import is_request
from proxy.edge.listening import Bind
from proxy.edge.rejections import Rejections
from proxy.edge.stats import Stats
from proxy.edge.tls import ListenerTls
from proxy.edge.transports import ClientWire
from proxy.edge.turned_away import TurnedAway, hold_s, is_let_in
from proxy.identity.sasl import SaslRules
from proxy.runtime.clock import now_ms
from proxy.runtime.tasks import later, spawn
from proxy.session.flow import CLIENT
from proxy.session.session import Session
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Accounts
from quotas.entities import ANONYMOUS

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

log = structlog.get_logger("sluice.listener")
_Serve = Callable[[Arrival], Coroutine[object, object, None]]


class _HeldError(Exception):
    """A client is refused for the rate of its address; the gate owns its socket."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits, counters and ports that all listeners of a worker share."""

    slots: ConnectionSlots
    gate: ConnectionGate
    limits: Limits
    stats: Stats
    rejections: Rejections
    bind: Bind
    turned_away: TurnedAway
    owners: "OwnersInForce | None" = None
    """With several instances: those that own the brokers."""
    protected_topics: frozenset[bytes] = frozenset()
    """Topics that no client may produce to through the proxy."""


class Listener:
    """One bootstrap address and one address per broker, and the sessions that connected there.

    ``name_of`` maps a certificate to its user (``ListenerTls``). Raises OSError if the TLS files cannot be loaded.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        worker: WorkerState,
        sasl: SaslRules,
        accounts: Accounts,
        name_of: Callable[[bytes], str],
        admission: Admission,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self._cluster = cluster
        self._worker = worker
        self._sasl = sasl
        self._accounts = accounts
        self._admission = admission
        self._stats = admission.stats
        self._acceptor = Acceptor(
            self.name, self._take, self._not_accepted, partial(admission.gate.delay_ms, self.name)
        )
        self._advertised = AdvertisedAddresses(settings, self._acceptor, admission.bind, admission.owners)
        self.tls: ListenerTls | None = None
        self._tls_error: str | None = None
        """Why the last reload of the certificate failed, as logged."""
        if settings.tls is not None:
            hosts = self._advertised.hosts if settings.broker_host is not None else None
            self.tls = ListenerTls(settings.tls, name_of, hosts)
            self._stats.certificate_expiry_s[self.name] = self.tls.expires_at_s
        self._broker_connector = BrokerConnector(cluster, admission.protected_topics, admission.owners)
        limits = admission.limits
        self._arrivals = Arrivals(settings, self.tls, limits.socket_receive_buffer_bytes, self._begin, self._named)
        self._arriving = Deadlines(self._late)
        self._deadlines: dict[Session, asyncio.TimerHandle] = {}
        self.sessions: set[Session] = set()
        self._of_broker: dict[Session, int] = {}
        """Sessions that connected to a broker's own address → its node id."""

    # ------------------------------------------------------------------------------------------------- addresses

    def advertise(self, endpoints: Sequence[Endpoint]) -> Mapping[int, tuple[bytes, int]]:
        """Open ports for the brokers of an answer; return the addresses that replace theirs (``Advertise``)."""
        self._cluster.hint(endpoints)
        return self._advertised.told

    def open_broker(self, node_id: int) -> None:
        """Open the address of ``node_id``; it accepts connections when this returns."""
        if self._broker_connector.unnamed:
            spawn(self._broker_connector.name(), "name the brokers of bootstrap sessions")
        self._advertised.open(node_id)

    def change(self, settings: ListenerSettings) -> list[Session]:
        """Apply changed address ``settings``; return the sessions that came through ports that are now closed."""
        closed = set(self._advertised.change(settings))
        for arrival in list(self._arriving.arriving):
            if arrival.node_id in closed:
                self._dismiss(arrival)
        return [session for session, node_id in self._of_broker.items() if node_id in closed]

    def tell_owners(self) -> None:
        """Advertise each broker's address at its owner of now."""
        self._advertised.tell_owners()

    def sessions_at(self, node_ids: Container[int]) -> list[Session]:
        """Return the sessions connected to brokers with ``node_ids``."""
        at = self._broker_connector.node_ids
        return [session for session in self.sessions if at.get(session) in node_ids]

    def try_ports_again(self) -> None:
        """Retry the ports that could not be bound."""
        self._advertised.try_again()

    @property
    def brokers_without_port(self) -> int:
        """Number of known brokers that no client of this listener can reach."""
        return len(self._advertised.without_port)

    @property
    def why_not_ready(self) -> str | None:
        """Why no client of this listener can reach any broker; None when one can, or no broker is known yet."""
        return self._advertised.why_not_ready

    def open_bootstrap(self, sockets: Iterable[socket.socket]) -> None:
        """Accept connections to the bootstrap address from listening ``sockets``, once clients can be told owners."""
        self._advertised.open_bootstrap(sockets)

    def close(self) -> None:
        """Stop accepting, and cut off connections without a session; sessions go on."""
        self._acceptor.close()
        self._advertised.accept_bootstrap()
        self._arriving.stop()
        for arrival in list(self._arriving.arriving):
            self._dismiss(arrival)

    async def reload_tls(self) -> None:
        """Reload certificate, key and authorities; on failure the old ones stay in force."""
        if self.tls is None:
            return
        try:
            await self.tls.load()
        except (OSError, ValueError) as error:
            self._stats.certificate_reloads[self.name, "failed"] += 1
            if str(error) != self._tls_error:  # also by SIGHUP, right after the file was seen to change
                log.error("certificate not loaded, the old one stays in force", listener=self.name, error=str(error))
            self._tls_error = str(error)
            return
        self._tls_error = None
        self._stats.certificate_reloads[self.name, "ok"] += 1
        self._stats.certificate_expiry_s[self.name] = self.tls.expires_at_s
        log.info("certificate loaded", listener=self.name, files=[str(path) for path in self.tls.files])

    # ------------------------------------------------------------------------------------------------- connections

    def _take(self, client: socket.socket, peer: Address, node_id: int | None) -> None:
        deadline_s = asyncio.get_running_loop().time() + self._admission.limits.authentication_timeout_s
        is_bootstrap = node_id is None and self.settings.broker_host is None
        counted_at = self._broker_connector.next() if is_bootstrap else node_id
        arrival = Arrival(client, peer, node_id, counted_at, deadline_s)
        arrival.awaits_header = self._arrivals.is_load_balancer(peer)
        self._admit(arrival)

    def _admit(self, arrival: Arrival) -> None:
        """Serve a connection, unless there are too many, or it is for another instance's broker."""
        if not arrival.awaits_header and self._holds(arrival):
            return
        if self._is_elsewhere(arrival.node_id) and not is_let_in(self._admission.owners):
            self._stats.connections[self.name, "not_owner"] += 1
            self._admission.turned_away.hold(arrival.client, arrival.peer.host)
        elif self._keep(arrival, self._admission.slots, self._serve):
            self._stats.connections[self.name, "accepted"] += 1

    def _keep(self, arrival: Arrival, slots: ConnectionSlots, serve: _Serve) -> bool:
        """Serve a connection until its deadline, if it gets a slot; return whether it does."""
        now_s = asyncio.get_running_loop().time()
        try:
            arrival.slot = slots.enter(
                arrival.host, arrival.counted_at, now_s, lambda error: self._crowd_out(arrival, error), self.name
            )
        except (FullError, ProtocolError) as error:
            arrival.client.close()
            self._accounts.refused += 1
            if isinstance(error, ProtocolError):
                self._reject(arrival, error)
            else:
                self._stats.connections[self.name, error.outcome] += 1
            return False
        self._stats.sessions[self.name] += 1
        arrival.task = spawn(serve(arrival), "receive a client")
        arrival.task.add_done_callback(lambda task: self._over(arrival, task))
        self._arriving.watch(arrival, arrival.deadline_s - now_s)
        return True

    def _is_elsewhere(self, node_id: int | None) -> bool:
        """Whether another instance owns the broker of a port or a host name, or nobody knows who owns any broker."""
        owners = self._admission.owners
        return owners is not None and not (owners.are_known if node_id is None else owners.owns(node_id))

    def _holds(self, arrival: Arrival) -> bool:
        """Whether a client is refused for the rate of its address: its socket is then held unread, and closed later."""
        gate, host = self._admission.gate, arrival.host
        exempt = self._accounts.exemptions.covers_address(host)
        arrival.admitted_ms = gate.clock()
        if (why := gate.refuses(self.name, host, arrival.counted_at, arrival.client, exempt=exempt)) is not None:
            arrival.taken = True
            self._held(arrival, why)
        return why is not None

    def _held(self, arrival: Arrival, why: str) -> None:
        arrival.is_dismissed = True
        self._accounts.refused += 1
        self._reject(arrival, ProtocolError(Cause.CONNECTION_RATE_PER_IP, why))

    def _holds_at_broker(self, arrival: Arrival, end: ClientWire) -> bool:
        """Whether a client is refused for the rate of its address, now that its broker is known. Raises ProtocolError
        if its address has too many connections there.
        """
        if arrival.counted_at is not None:
            return False
        broker = self._broker_connector.next() if arrival.node_id is None else arrival.node_id
        if broker is None:
            return False
        gate, host = self._admission.gate, arrival.host
        exempt = self._accounts.exemptions.covers_address(host)
        if (why := gate.refuses_at(self.name, host, broker, arrival.admitted_ms, end.abort, exempt=exempt)) is not None:
            end.pause_reading()
            self._held(arrival, why)
            return True
        try:
            self._admission.slots.assign(arrival.slot, broker)
        except ProtocolError:
            self._accounts.refused += 1
            raise
        arrival.counted_at = broker
        return False

    def _late(self, arrival: Arrival) -> None:
        within = f"within {self._admission.limits.authentication_timeout_s:g} s"
        self._dismiss(arrival, ProtocolError(Cause.AUTHENTICATION_TIMEOUT, f"no {arrival.awaited} {within}"))

    def _not_accepted(self) -> None:
        self._stats.connections[self.name, "not_accepted"] += 1

    async def _serve(self, arrival: Arrival) -> None:
        """Take a client to its first request, and connect its session to the broker."""
        try:
            await self._arrivals.receive(arrival)
        except ProtocolError as error:
            arrival.is_dismissed = True
            self._reject(arrival, error)
        except (LeftEarly, _HeldError, OSError):
            pass
        session = arrival.session
        if session is None or session.closed:
            return
        is_named = arrival.server_name is not None or self.settings.broker_host is None
        if not await self._broker_connector.connect(
            session, arrival.slot, arrival.node_id, arrival.counted_at, is_named=is_named
        ):
            self._stats.connections[self.name, "broker_unreachable"] += 1
            session.close()

    def _over(self, arrival: Arrival, task: asyncio.Task[None]) -> None:
        """Release a connection whose task has ended, even one cancelled before it began."""
        if arrival.session is None:
            self._gone(arrival)
        elif task.cancelled() or task.exception() is not None:
            arrival.session.abort()

    def _dismiss(self, arrival: Arrival, error: ProtocolError | None = None) -> None:
        """Close a connection without a session, because of ``error`` or because the proxy stops."""
        if arrival.is_dismissed:
            return
        if error is not None:
            self._reject(arrival, error)
        arrival.dismiss()

    def _gone(self, arrival: Arrival) -> None:
        """Release a connection that ended without a session."""
        self._arriving.forget(arrival)
        self._stats.sessions[self.name] -= 1
        if arrival.connection is not None:
            arrival.connection.abort()
        elif not arrival.taken:
            arrival.client.close()
        if arrival.connection is not None and arrival.connection.refused is not None:
            self._reject(arrival, arrival.connection.refused)
        elif not arrival.is_dismissed:
            self._stats.connections[self.name, "left_early"] += 1
        arrival.slot.descriptor_closed()

    def _named(self, arrival: Arrival) -> None:
        if self._holds(arrival):
            raise _HeldError
        self._admission.slots.name(arrival.slot, arrival.host)

    def _crowd_out(self, arrival: Arrival, error: ProtocolError) -> None:
        if arrival in self._arriving.arriving:
            self._accounts.refused += 1
            self._dismiss(arrival, error)

    def _begin(self, arrival: Arrival, end: ClientWire, begun: bytes) -> Session | None:
        """Create the session of a client once its first request is there; None if more bytes are needed."""
        by_sasl = self.settings.authentication == "sasl"
        if arrival.is_dismissed or not is_request(begun, self._worker, authenticated=not by_sasl):
            return None
        user, node_id = ANONYMOUS, arrival.node_id
        if self.tls is not None and end.tls is not None:
            if arrival.server_name is not None:
                arrival.node_id = self._advertised.hosts.get(arrival.server_name.lower(), arrival.node_id)
            # As in Kafka: with SASL the login names the user, and a certificate only lets the client in.
            user = user if by_sasl else self.tls.user_of(end.tls)
        if arrival.node_id != node_id and self._is_elsewhere(arrival.node_id) and not is_let_in(self._admission.owners):
            self._turn_away(arrival, end)
            return None
        if self._holds_at_broker(arrival, end):
            return None
        session = Session(
            self._worker,
            end,
            self.advertise,
            self._closed,
            sasl=self._sasl,
            accounts=self._accounts,
            peer=str(arrival.peer),
            user=user,
            authenticated=not by_sasl,
            exempt=self._accounts.exemptions.covers_address(arrival.peer.host),
            names_one_controller=self._broker_connector.names_one_controller,
        )
        if by_sasl:
            left_s = arrival.deadline_s - asyncio.get_running_loop().time()
            self._deadlines[session] = later(
                left_s, "authentication is overdue", self._overdue, session, otherwise=session.abort
            )
        arrival.begin(session)
        self._arriving.forget(arrival)
        end.owner = arrival.slot
        self._admission.slots.settle(arrival.slot)
        self.sessions.add(session)
        if arrival.node_id is not None:
            self._of_broker[session] = arrival.node_id
        return session

    def _turn_away(self, arrival: Arrival, end: ClientWire) -> None:
        """Hold a client whose host name (SNI) is that of another instance's broker, and close it in a moment."""
        arrival.is_dismissed = True
        end.pause_reading()
        self._stats.connections[self.name, "not_owner"] += 1
        later(hold_s(), "close a connection of another instance's broker", end.abort, otherwise=end.abort)

    def _overdue(self, session: Session) -> None:
        self._deadlines.pop(session, None)
        session.overdue()

    def _closed(self, session: Session) -> None:
        if session in self.sessions:
            self.sessions.discard(session)
            self._of_broker.pop(session, None)
            self._stats.sessions[self.name] -= 1
            self._broker_connector.forget(session)
            if (deadline := self._deadlines.pop(session, None)) is not None:
                deadline.cancel()

    def _reject(self, arrival: Arrival, error: ProtocolError) -> None:
        about = arrival.server_name if error.cause is Cause.UNKNOWN_SNI else None
        self._admission.rejections.note(CLIENT, error, str(arrival.peer), now_ms(), about=about)
