"""Where clients connect: a bootstrap port, and a port for each broker that listens before a client is told of it."""

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence

import structlog

from config.settings import Listener as ListenerSettings
from protocol.locator import Endpoint
from proxy.cluster import Broker, Cluster, describe
from proxy.identity.sasl import SaslRules
from proxy.in_flight import Rules
from proxy.session import Session
from proxy.stats import Stats
from proxy.tasks import spawn
from proxy.transports import BrokerEnd, ClientEnd
from quotas.entities import ANONYMOUS

log = structlog.get_logger("sluice.listener")

_BACKLOG = 1024
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class Listener:
    """One bootstrap address and one port per broker, with the sessions made there.

    ``admit`` says whether one more connection may be taken; ``connect_timeout_s`` bounds the broker's half.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        rules: Rules,
        stats: Stats,
        admit: Callable[[], bool],
        connect_timeout_s: float,
        sasl: SaslRules,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._cluster = cluster
        self._rules = rules
        self._stats = stats
        self._admit = admit
        self._connect_timeout_s = connect_timeout_s
        self._sasl = sasl
        self._host = settings.advertise.encode()
        self._told: dict[int, tuple[bytes, int]] = {}
        self._bound: set[socket.socket] = set()
        """Listening already, and served from the loop's next turn on."""
        self._servers: list[asyncio.Server] = []
        self._open = True
        self.sessions: set[Session] = set()

    # ------------------------------------------------------------------------------------------------- addresses

    def advertise(self, endpoints: Sequence[Endpoint]) -> Mapping[int, tuple[bytes, int]]:
        """Learn the brokers of an answer and return what this listener's clients are told instead."""
        self._cluster.learn(endpoints)
        return self._told

    def open_broker(self, node_id: int) -> None:
        """Listen for ``node_id``: its port takes connections when this returns (bind and listen do not wait)."""
        if node_id in self._told or not self._open:
            return
        port = self._settings.brokers.port_of(node_id) if self._settings.brokers else None
        if port is None:
            # A client that is told the broker's own address escapes. A name that says what is missing stands in
            # the client's own log, and only this broker cannot be reached (RFC 2606: .invalid never resolves).
            self._told[node_id] = (
                f"node-id-{node_id}-has-no-port-in-sluice.invalid".encode(),
                self._settings.bind.port,
            )
            log.error(
                "no port for broker: clients of this listener cannot reach it",
                listener=self.name,
                broker=node_id,
                fix=f"add the node id to brokers of listener {self.name}",
            )
            return
        try:
            self._listen(port, node_id)
        except OSError as error:
            log.error("cannot listen for broker", listener=self.name, broker=node_id, port=port, error=describe(error))
        self._told[node_id] = (self._host, port)

    def open_bootstrap(self) -> None:
        """Listen on the bootstrap address. Raises OSError with the address in its text."""
        try:
            self._listen(self._settings.bind.port, None)
        except OSError as error:
            raise OSError(f"listener {self.name}: cannot bind {self._settings.bind}: {describe(error)}") from error

    def _listen(self, port: int, node_id: int | None) -> None:
        failure: OSError | None = None
        opened = 0
        for family, kind, protocol, _, address in socket.getaddrinfo(
            self._settings.bind.host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                bound = _bind(family, kind, protocol, address)
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                failure = error  # a name with an IPv6 address too, on a machine without IPv6
                continue
            opened += 1
            self._bound.add(bound)
            spawn(self._serve(bound, node_id), f"listen on {address}")
        if failure is not None and not opened:
            raise failure

    async def _serve(self, bound: socket.socket, node_id: int | None) -> None:
        if not self._open:
            return
        self._bound.discard(bound)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: ClientEnd(lambda end: self._accept(end, node_id)), sock=bound)
        self._servers.append(server)
        self._close_if_late()

    def _close_if_late(self) -> None:
        if not self._open:
            self.close()

    def close(self) -> None:
        """Take no further connection; sessions go on."""
        self._open = False
        for server in self._servers:
            server.close()
        for bound in self._bound:
            bound.close()
        self._servers.clear()
        self._bound.clear()

    # -------------------------------------------------------------------------------------------------- sessions

    def _accept(self, end: ClientEnd, node_id: int | None) -> Session | None:
        if not self._admit():
            self._stats.connections[self.name, "refused_limit"] += 1
            return None
        self._stats.connections[self.name, "accepted"] += 1
        session = Session(
            self._rules,
            end,
            self.advertise,
            self._closed,
            sasl=self._sasl,
            peer=end.peer,
            user=ANONYMOUS,
            authenticated=self._settings.authentication == "none",
        )
        self.sessions.add(session)
        self._stats.sessions[self.name] += 1
        spawn(self._connect(session, node_id), "connect to broker")
        return session

    async def _connect(self, session: Session, node_id: int | None) -> None:
        """Connect ``session`` to its broker, or on the bootstrap port to the first that takes the connection."""
        for broker in self._cluster.candidates(node_id):
            try:
                end = await self._open_end(session, broker)
            except (OSError, TimeoutError) as error:
                self._cluster.note_attempt(broker, error)
                continue
            self._cluster.note_attempt(broker, None)
            if session.closed:
                end.close()
            else:
                session.connected(end, broker.node_id)
            return
        self._stats.connections[self.name, "broker_unreachable"] += 1
        session.close()

    async def _open_end(self, session: Session, broker: Broker) -> BrokerEnd:
        end = BrokerEnd(session)
        async with asyncio.timeout(self._connect_timeout_s):
            await asyncio.get_running_loop().create_connection(lambda: end, broker.host, broker.port)
        return end

    def _closed(self, session: Session) -> None:
        if session in self.sessions:
            self.sessions.discard(session)
            self._stats.sessions[self.name] -= 1


def _bind(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
