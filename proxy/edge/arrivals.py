"""From an accepted connection to its first request: PROXY header, TLS handshake and request, within one deadline.

The first bytes are peeked at before anything is spent on a connection: plaintext never reaches OpenSSL, and has its own
rejection cause. Client bytes are never quoted in messages: before TLS they may well be a password.
"""

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from config.listener import Listener as ListenerSettings
from config.units import Address
from protocol.errors import Cause, ProtocolError
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.handshake import HANDSHAKE, Handshake
from proxy.edge.proxy_protocol import MAX_HEADER_BYTES, Header, is_header, least_bytes, parse
from proxy.edge.tls import HANDSHAKE_RECORD, ListenerTls, why_failed
from proxy.edge.transports import ClientWire
from proxy.runtime.tasks import later, on_readable
from proxy.session.session import Session
from quotas.connections import counted_as

_PEEKED_BYTES: Final = 16
HANDSHAKES_IN_A_TURN: Final = 8
"""TLS handshakes begun per turn of the loop."""
_LONGER_THAN_OURS_S: Final = 3600.0
"""The event loop's own handshake timeout, so long that it never fires before the listener's deadline."""


class LeftEarly(Exception):  # noqa: N818  no error: health checks do it all day
    """The client closed the connection before its first request was complete."""


class Arrival(Handshake):
    """One accepted connection, until it has a session."""

    __slots__ = (
        "_over",
        "admitted_ms",
        "awaited",
        "awaits_header",
        "connection",
        "counted_at",
        "deadline_s",
        "is_dismissed",
        "node_id",
        "peer",
        "session",
        "slot",
        "taken",
        "task",
    )

    slot: ConnectionSlot
    task: asyncio.Task[None]
    """The task that takes the connection from its socket to its broker."""

    def __init__(
        self, client: socket.socket, peer: Address, node_id: int | None, counted_at: int | None, deadline_s: float
    ) -> None:
        super().__init__(client)
        self._over: asyncio.Future[None] | None = None
        self.peer = peer
        """The client's address: the socket's peer, or the source in the PROXY header."""
        self.node_id = node_id
        """The broker whose port was connected to; None: any."""
        self.counted_at = counted_at
        """The broker for which the connection counts towards limits of addresses; None while it is not known."""
        self.admitted_ms = 0
        """When it was counted for its address."""
        self.deadline_s = deadline_s
        """Deadline for the first request and for authentication, on the loop's clock."""
        self.awaited = "PROXY protocol header"
        self.awaits_header = False
        """A load balancer's, whose PROXY header has not come yet."""
        self.is_dismissed = False
        self.taken = False
        """The socket is owned by a transport or by ``ConnectionGate``."""
        self.connection: ClientWire | None = None
        self.session: Session | None = None

    @property
    def host(self) -> str:
        """The IP address that it counts for; "" until a load balancer names it."""
        return "" if self.awaits_header else counted_as(self.peer.host)

    async def first_request(self) -> None:
        """Wait until the first request has created the session, or the socket is closed."""
        if self.session is None and self.connection is not None and self.connection.is_open:
            self._over = asyncio.get_running_loop().create_future()
            await self._over

    def begin(self, session: Session) -> None:
        """Attach the session that the first request created."""
        self.session = session
        self._wake()

    def descriptor_closed(self) -> None:
        """Note that the socket is closed."""
        self.slot.descriptor_closed()
        self._wake()

    def _wake(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def dismiss(self) -> None:
        """Cut the connection off; its task then ends."""
        self.is_dismissed = True
        if self.connection is not None and self.connection.is_open:
            self.connection.abort()
        else:
            self.task.cancel()


class Arrivals:
    """The steps that each client of one listener passes.

    ``begin`` is given the bytes received so far: it creates the session, returns None if more bytes are needed, or
    raises ProtocolError. ``named`` is called when a PROXY header has named the client, and may raise to refuse it.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        tls: ListenerTls | None,
        receive_buffer_bytes: int,
        begin: Callable[[Arrival, ClientWire, bytes], Session | None],
        named: Callable[[Arrival], None],
    ) -> None:
        self._networks = settings.proxy_protocol.networks if settings.proxy_protocol is not None else ()
        self._tls = tls
        self._receive_buffer_bytes = receive_buffer_bytes
        self._begin = begin
        self._named = named
        self._handshakes = HandshakePacer(HANDSHAKES_IN_A_TURN)

    async def receive(self, arrival: Arrival) -> None:
        """Take ``arrival`` to its transport, and wait for its first request.

        Raises ProtocolError, LeftEarly or OSError if it does not get that far.
        """
        if arrival.awaits_header:
            await read_source(arrival)
            self._named(arrival)
        if self._tls is None:
            arrival.taken = True
            await self._connect(arrival)
        else:
            arrival.awaited = "TLS handshake"
            await self._secure(arrival, self._tls)
        arrival.awaited = "request"
        await arrival.first_request()

    def is_load_balancer(self, peer: Address) -> bool:
        """Whether ``peer`` is in a network that has to send a PROXY header."""
        if not self._networks:
            return False
        ip = ipaddress.ip_address(peer.host.partition("%")[0])
        return any(ip in network for network in self._networks)

    async def _secure(self, arrival: Arrival, tls: ListenerTls) -> None:
        first = await peek(arrival.client, _PEEKED_BYTES)
        if not first:
            raise LeftEarly
        if is_header(first):
            raise ProtocolError(
                Cause.PROXY_PROTOCOL_NOT_ALLOWED, "a PROXY protocol header, which this listener does not allow"
            )
        if not first.startswith(HANDSHAKE_RECORD[: len(first)]):
            raise ProtocolError(Cause.NOT_TLS, "plaintext on a TLS listener: is the client's security.protocol right?")
        await self._handshakes.turn()
        HANDSHAKE.set(arrival)
        arrival.taken = True
        try:
            await self._connect(arrival, ssl=tls.context, ssl_handshake_timeout=_LONGER_THAN_OURS_S)
        except (OSError, ValueError) as error:  # ValueError: a certificate that ssl cannot show as a dictionary
            raise why_failed(error, arrival) from error

    async def _connect(self, arrival: Arrival, **tls: Any) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._new_connection(arrival), arrival.client, **tls
        )

    def _new_connection(self, arrival: Arrival) -> asyncio.BaseProtocol:
        arrival.connection = ClientWire(
            lambda connection, begun: self._begin(arrival, connection, begun),
            arrival,
            self._receive_buffer_bytes,
        )
        return cast("asyncio.BaseProtocol", arrival.connection)


class HandshakePacer:
    """Rate limiter: ``in_a_turn`` callers pass in each turn of the loop, first come, first served.

    A handshake takes the loop a millisecond. After a restart all clients reconnect at once; connected clients must not
    wait until the last handshake is done.
    """

    def __init__(self, in_a_turn: int) -> None:
        self._in_a_turn = in_a_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._passed = 0
        self._begun = False

    async def turn(self) -> None:
        """Wait for this caller's turn."""
        if not self._begun:
            self._begun = True
            later(0.0, "begin TLS handshakes", self._next, otherwise=self._restart)
        if self._passed < self._in_a_turn and not self._waiting:
            self._passed += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _next(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < self._in_a_turn:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled
                first.set_result(None)
                self._passed += 1
        self._begun = bool(self._passed)
        if self._begun:
            later(0.0, "begin TLS handshakes", self._next, otherwise=self._restart)

    def _restart(self) -> None:
        """Schedule the next batch again after ``_next`` has failed."""
        later(0.0, "begin TLS handshakes", self._next)


async def read_source(arrival: Arrival) -> None:
    """Take the client's address from the PROXY header. Raises as ``read_header``."""
    header = await read_header(arrival.client)
    arrival.peer = header.source or arrival.peer
    arrival.awaits_header = False


async def read_header(client: socket.socket) -> Header:
    """Read the PROXY header and not a byte beyond it. Raises ProtocolError for anything else, or LeftEarly."""
    begun, least = bytearray(), 1
    while True:
        peeked = await peek(client, MAX_HEADER_BYTES)
        if not peeked and begun:
            raise ProtocolError(Cause.PROXY_PROTOCOL_INVALID, "the connection ends within the PROXY protocol header")
        if not peeked:
            raise LeftEarly
        before = len(begun)
        begun.extend(peeked)
        header = None
        if len(begun) >= least:
            data = bytes(begun)
            header, least = parse(data), least_bytes(data)
        # An incomplete header is consumed: left in the socket, it would keep the socket readable for ever.
        client.recv(len(peeked) if header is None else header.length_bytes - before)
        if header is not None:
            return header


async def peek(client: socket.socket, most_bytes: int) -> bytes:
    """Wait for bytes and return them unread, b"" at the end of the stream. Raises LeftEarly if it is reset."""
    loop = asyncio.get_running_loop()
    while True:
        readable = loop.create_future()
        on_readable(client, "wake a waiter for first bytes", _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(client)
        try:
            return client.recv(most_bytes, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError:
            raise LeftEarly from None


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
