"""The proxy's own connection to a broker: one request and answer at a time. Sessions use transports.py instead."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from aiohappyeyeballs import start_connection

from protocol.frames import RESPONSE_HEAD
from protocol.requests import Request
from proxy.brokers.names import NAMES

T = TypeVar("T")

CLIENT_ID: Final = "sluice"
_GOODBYE_S: Final = 1.0
"""Timeout for a clean end of TLS."""
_LAST_PORT: Final = 65535
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_NO_BROKER: Final = "does not respond like a Kafka broker: is this a listener without TLS?"
_NEXT_ADDRESS_S: Final = 0.25
"""How long an address of a name has before the next one is tried beside it (RFC 8305)."""


class BrokerConnection:
    """Sends one request after the other; deadlines are the caller's (``asyncio.timeout``)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._transport = writer.transport
        self._asked = 0

    async def ask(self, request: Request, client_id: str = CLIENT_ID) -> bytes:
        """Return the complete answer frame. Raises OSError, or EOFError if the broker closes instead."""
        size, reader = await self.begin(request, client_id)
        if size > _MAX_ANSWER_BYTES:
            raise ConnectionError(_NO_BROKER)
        return RESPONSE_HEAD.pack(size + 4, self._asked) + await reader.readexactly(size)

    async def begin(self, request: Request, client_id: str = CLIENT_ID) -> tuple[int, asyncio.StreamReader]:
        """Return the size of an answer behind its correlation id, and where the caller has to read exactly that."""
        if not self.is_open:  # uvloop would raise RuntimeError
            raise ConnectionResetError("closed the connection")
        self._asked += 1
        self._writer.write(request.frame(client_id, self._asked))
        size, correlation_id = RESPONSE_HEAD.unpack(await self._reader.readexactly(RESPONSE_HEAD.size))
        if size < 4 or correlation_id != self._asked:
            raise ConnectionError(_NO_BROKER)
        return size - 4, self._reader

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):  # an error of the connection has been raised already
            async with asyncio.timeout(_GOODBYE_S):
                await self._writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection, if any, with its version, cipher and certificates."""
        tls: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        return tls

    @property
    def is_open(self) -> bool:
        """Whether the broker has not closed it, as far as the kernel has told by now."""
        return not self._transport.is_closing()

    @property
    def ip(self) -> str:
        """The address of the peer, as a number."""
        name: tuple[str, int] = self._writer.get_extra_info("peername")
        return name[0]

    @property
    def own_address(self) -> tuple[str, int]:
        """Host and port of this side, which the other side sees as its peer."""
        name = self._writer.get_extra_info("sockname")
        return name[0], name[1]


class BrokerClient(Protocol):
    """Asks whichever broker answers: ``proxy.brokers.cluster.Cluster``."""

    async def ask(self, question: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Raises OSError if no broker answers."""
        ...


class _ClosedByEnd(asyncio.StreamReaderProtocol):
    """Closes this side, too, when the broker has closed its own."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def open_connection(
    host: str, port: int, context: ssl.SSLContext | None, server_name: str | None = None
) -> BrokerConnection:
    """Connect; with ``context`` through TLS, for ``server_name`` (else ``host``)."""
    reader = asyncio.StreamReader()
    protocol = _ClosedByEnd(reader)
    transport = await open_transport(protocol, host, port, context, server_name)
    return BrokerConnection(reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()))


@asynccontextmanager
async def connect(
    host: str, port: int, context: ssl.SSLContext | None, server_name: str | None = None
) -> AsyncIterator[BrokerConnection]:
    """Connect as ``open_connection``, and close at the end."""
    connection = await open_connection(host, port, context, server_name)
    try:
        yield connection
    finally:
        await connection.close()


async def open_transport(
    protocol: asyncio.BaseProtocol,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    server_name: str | None = None,
    ip: str | None = None,
) -> asyncio.Transport:
    """Connect ``protocol``; with ``context`` through TLS, for ``server_name`` (else ``host``). ``ip``: to that address
    of the host alone.

    Raises OSError, also if ``host`` and ``port``, which a broker may advertise, are not a valid address.
    """
    if not 0 < port <= _LAST_PORT:  # uvloop would take it modulo 65536
        raise OSError(f"{host!a} port {port} is no address to connect to")
    name = (server_name or host) if context is not None else None
    loop = asyncio.get_running_loop()
    try:
        ips = await NAMES.ips(host) if ip is None else (ip,)
        if len(ips) == 1:
            where: dict[str, Any] = {"host": ips[0], "port": port}
        else:  # one that is silent must not take the time of the next (KIP-302)
            numeric: dict[str, Any] = {"type": socket.SOCK_STREAM, "flags": socket.AI_NUMERICHOST}
            found = [socket.getaddrinfo(each, port, **numeric)[0] for each in ips]
            where = {"sock": await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S)}
        transport, _ = await loop.create_connection(lambda: protocol, ssl=context, server_hostname=name, **where)
    except ConnectionResetError as error:
        if context is None:
            raise
        raise ConnectionResetError(  # asyncio's error has no text
            "closed the connection during the TLS handshake: does it speak TLS, or require a client certificate?"
        ) from error
    except ValueError as error:  # UnicodeError: a name that IDNA cannot encode, such as one with an empty label
        if isinstance(error, OSError):  # a certificate error is both
            raise
        raise OSError(f"{host!a} port {port} is no address to connect to: {error}") from error
    return transport
