"""From an accepted connection to the first byte of Kafka: the PROXY header, then TLS, within one deadline.

The first bytes are looked at before anything is spent on a connection: what is not TLS never reaches OpenSSL, and has
a cause of its own. Nothing that a client sent is ever quoted: before TLS it may well be a password.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Final

from config.listener import Listener as ListenerSettings
from config.units import Address
from protocol.errors import Cause, ProtocolError
from proxy.proxy_protocol import MAX_HEADER_BYTES, Header, is_header, parse
from proxy.session import Session
from proxy.tasks import on_readable
from proxy.tls import HANDSHAKE, HANDSHAKE_RECORD, Handshake, ListenerTls, why_failed
from proxy.transports import ClientEnd

_PEEKED_BYTES: Final = 16
_LONGER_THAN_OURS_S: Final = 3600.0
"""The loop's own limit for a handshake: one that never comes before ours."""


class LeftEarly(Exception):  # noqa: N818  no error: health checks do it all day
    """The client closed the connection before it said anything that can be judged."""


class Arrival(Handshake):
    """One accepted connection, until it has a session."""

    __slots__ = ("deadline_s", "node_id", "peer", "session", "taken")

    def __init__(self, client: socket.socket, peer: Address, node_id: int | None, deadline_s: float) -> None:
        super().__init__(client)
        self.peer = peer
        """The client: the socket's peer, or whom the PROXY header names."""
        self.node_id = node_id
        """The broker that it wants, None for any."""
        self.deadline_s = deadline_s
        """On the loop's clock: when it has to be authenticated."""
        self.taken = False
        """A transport owns the socket."""
        self.session: Session | None = None


class Arrivals:
    """What the clients of one listener go through. ``begin`` makes the session, or returns None to refuse it."""

    def __init__(
        self,
        settings: ListenerSettings,
        tls: ListenerTls | None,
        timeout_s: float,
        begin: Callable[[Arrival, ClientEnd], Session | None],
    ) -> None:
        self._networks = settings.proxy_protocol.networks if settings.proxy_protocol is not None else ()
        self._tls = tls
        self._timeout_s = timeout_s
        self._begin = begin

    async def receive(self, arrival: Arrival) -> None:
        """Bring ``arrival`` to its session. Raises ProtocolError or LeftEarly where it does not come to one."""
        if self._tls is None and not self._networks:
            await self._connect(arrival)
            return
        try:
            async with asyncio.timeout_at(arrival.deadline_s):
                if self._is_load_balancer(arrival.peer):
                    header = await read_header(arrival.client)
                    arrival.peer = header.source or arrival.peer
                if self._tls is None:
                    await self._connect(arrival)
                else:
                    await self._secure(arrival, self._tls)
        except TimeoutError:
            what = "TLS handshake" if self._tls is not None else "PROXY protocol header"
            raise ProtocolError(Cause.AUTHENTICATION_TIMEOUT, f"no {what} within {self._timeout_s:g} s") from None

    def _is_load_balancer(self, peer: Address) -> bool:
        if not self._networks:
            return False
        ip = ipaddress.ip_address(peer.host.partition("%")[0])
        return any(ip in network for network in self._networks)

    async def _secure(self, arrival: Arrival, tls: ListenerTls) -> None:
        first = await _peek(arrival.client, _PEEKED_BYTES)
        if not first:
            raise LeftEarly
        if is_header(first):
            raise ProtocolError(Cause.PROXY_PROTOCOL_NOT_ALLOWED, "a PROXY protocol header where none is allowed")
        if not first.startswith(HANDSHAKE_RECORD[: len(first)]):
            raise ProtocolError(Cause.NOT_TLS, "no TLS where TLS is expected: is the client's security.protocol right?")
        HANDSHAKE.set(arrival)
        arrival.taken = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._end(arrival),
                arrival.client,
                ssl=tls.context,
                ssl_handshake_timeout=_LONGER_THAN_OURS_S,
            )
        except (OSError, ValueError) as error:  # ValueError: a certificate that ssl cannot show as a dictionary
            raise why_failed(error, arrival) from error

    async def _connect(self, arrival: Arrival) -> None:
        arrival.taken = True
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._end(arrival), arrival.client)

    def _end(self, arrival: Arrival) -> ClientEnd:
        return ClientEnd(lambda end: self._begin(arrival, end))


async def read_header(client: socket.socket) -> Header:
    """Read the PROXY header and not a byte beyond it. Raises ProtocolError for anything else, or LeftEarly."""
    begun = b""
    while True:
        peeked = await _peek(client, MAX_HEADER_BYTES)
        if not peeked and begun:
            raise ProtocolError(Cause.PROXY_PROTOCOL_INVALID, "the connection ends within the PROXY protocol header")
        if not peeked:
            raise LeftEarly
        header = parse(begun + peeked)
        # Of an incomplete header all is taken: what stays would make the socket readable for ever.
        client.recv(len(peeked) if header is None else header.length_bytes - len(begun))
        if header is not None:
            return header
        begun += peeked


async def _peek(client: socket.socket, most_bytes: int) -> bytes:
    """Wait for bytes and return them unread, b"" at the end of the stream. Raises LeftEarly if it is reset."""
    loop = asyncio.get_running_loop()
    while True:
        readable = loop.create_future()
        on_readable(client, "wake who waits for a first byte", _wake, readable)
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
