"""Listeners: a bootstrap address, and for each broker a port or a host name that clients are told."""

import socket
from functools import partial

import structlog

from config.settings import Listener as ListenerSettings
from config.units import Address
from protocol.locator import Endpoint
from proxy.brokers.cluster import Cluster
from proxy.edge.advertised_addresses import AdvertisedAddresses
from proxy.edge.arrival import Arrival
from proxy.edge.arriving import Admission, Arriving
from proxy.edge.broker_connector import BrokerConnector
from proxy.edge.listening import Acceptor
from proxy.edge.sorter import Passed
from proxy.edge.tls import ListenerTls
from proxy.edge.wires import ClientWire
from proxy.identity.sasl import SaslRules
from proxy.runtime.tasks import spawn
from proxy.session.session import Session
from proxy.session.throttling import Alarm
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Accounts
from quotas.entities import ANONYMOUS

log = structlog.get_logger("sluice.listener")


class Listener:
    """One bootstrap address and one address per broker, and the sessions that connected there.

    Raises OSError if the TLS files cannot be loaded.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        worker: WorkerState,
        sasl: SaslRules,
        accounts: Accounts,
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
        self.addresses = AdvertisedAddresses(settings, self._acceptor, admission.bind, admission.owners)
        self.tls: ListenerTls | None = None
        self._tls_error: str | None = None
        """Why the last reload of the certificate failed, as logged."""
        if settings.tls is not None:
            hosts = self.addresses.hosts if settings.broker_host is not None else None
            self.tls = ListenerTls(settings.tls, hosts)
            self._stats.certificate_expiry_s[self.name] = self.tls.expires_at_s
        self._broker_connector = BrokerConnector(cluster, admission.protected_topics, admission.owners)
        self._arriving = Arriving(
            settings, admission, accounts, self.tls, self.addresses.hosts, self._broker_connector, worker, self._begin
        )
        if settings.broker_host is not None and admission.passing is not None:
            admission.passing.receive(self.name, self.take_passed)
        self._deadlines: dict[Session, Alarm] = {}
        """Deadlines of sessions that have to log in."""
        self.sessions: set[Session] = set()
        self._of_broker: dict[Session, int] = {}
        """Sessions that connected to a broker's own address → its node id."""

    # ------------------------------------------------------------------------------------------------- addresses

    def advertise(self, endpoint: Endpoint) -> tuple[bytes, int] | None:
        """Open the port for a broker in an answer; return the address that replaces its own."""
        self._cluster.hint((endpoint,))
        return self.addresses.told.get(endpoint.node_id)

    def open_broker(self, node_id: int) -> None:
        """Open the address of ``node_id``; it accepts connections when this returns."""
        if self._broker_connector.unnamed:
            spawn(self._broker_connector.name(), "name the brokers of bootstrap sessions")
        self.addresses.open(node_id)

    def change(self, settings: ListenerSettings) -> list[Session]:
        """Apply changed address ``settings``; return the sessions that came through ports that are now closed."""
        closed = set(self.addresses.change(settings))
        for arrival in list(self._arriving.arriving):
            if arrival.node_id in closed:
                self._arriving.dismiss(arrival)
        return [session for session, node_id in self._of_broker.items() if node_id in closed]

    def close(self) -> None:
        """Stop accepting, and cut off connections without a session; sessions go on."""
        self._acceptor.close()
        self.addresses.accept_bootstrap()
        self._arriving.stop()

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
        self._arriving.take(client, peer, node_id)

    def take_passed(self, client: socket.socket, message: Passed) -> None:
        if self._acceptor.open:
            self._arriving.take_passed(client, message)
        else:
            client.close()

    def _not_accepted(self) -> None:
        self._stats.connections[self.name, "not_accepted"] += 1

    def _begin(self, arrival: Arrival, wire: ClientWire) -> Session:
        """Create the session of a client, whose first request is there. Raises ProtocolError if nobody is named by its
        certificate.
        """
        by_sasl = self.settings.authentication == "sasl"
        user = ANONYMOUS
        if self.tls is not None and wire.tls is not None and not by_sasl:
            # As in Kafka: with SASL the login names the user, and a certificate only lets the client in.
            user = self.tls.user_of(wire.tls)
        session = arrival.session = Session(
            self._worker,
            wire,
            self.advertise,
            self._closed,
            sasl=self._sasl,
            accounts=self._accounts,
            peer=str(arrival.peer),
            user=user,
            authenticated=not by_sasl,
            exempt=arrival.is_exempt,
            names_one_controller=self._broker_connector.names_one_controller,
        )
        if by_sasl:
            overdue = partial(self._overdue, session)
            self._deadlines[session] = self._admission.alarms.add(overdue, session.abort, arrival.deadline_ms)
        self.sessions.add(session)
        if arrival.node_id is not None:
            self._of_broker[session] = arrival.node_id
        return session

    def _overdue(self, session: Session, now_ms: int) -> None:
        del self._deadlines[session]
        session.overdue(now_ms)

    def _closed(self, session: Session) -> None:
        self.sessions.remove(session)
        self._of_broker.pop(session, None)
        self._stats.sessions[self.name] -= 1
        self._broker_connector.unnamed.pop(session, None)
        if (deadline := self._deadlines.pop(session, None)) is not None:
            deadline.cancel()
