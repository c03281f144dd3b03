"""The proxy's own connection to a broker: one request and answer at a time. Sessions use transports.py instead."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from protocol.frames import RESPONSE_HEAD
from protocol.requests import Request

CLIENT_ID: Final = "sluice"
_GOODBYE_S: Final = 1.0
"""Timeout for a clean end of TLS."""
_LAST_PORT: Final = 65535
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_NO_BROKER: Final = "does not respond like a Kafka broker: is this a listener without TLS?"


class BrokerConnection:
    """Sends one request after the other; deadlines are the caller's (``asyncio.timeout``)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0

    async def ask(self, request: Request, client_id: str = CLIENT_ID) -> bytes:
        """Return the complete answer frame. Raises OSError, or EOFError if the broker closes instead."""
        size, reader = await self.begin(request, client_id)
        if size > _MAX_ANSWER_BYTES:
            raise ConnectionError(_NO_BROKER)
        return RESPONSE_HEAD.pack(size + 4, self._asked) + await reader.readexactly(size)

    async def begin(self, request: Request, client_id: str = CLIENT_ID) -> tuple[int, asyncio.StreamReader]:
        """Return the size of an answer behind its correlation id, and where the caller has to read exactly that."""
        self._asked += 1
        self._writer.write(request.frame(client_id, self._asked))
        size, correlation_id = RESPONSE_HEAD.unpack(await self._reader.readexactly(RESPONSE_HEAD.size))
        if size < 4 or correlation_id != self._asked:
            raise ConnectionError(_NO_BROKER)
        return size - 4, self._reader

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection, if any, with its version, cipher and certificates."""
        tls: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        return tls

    @property
    def own_address(self) -> tuple[str, int]:
        """Host and port of this side, which the other side sees as its peer."""
        name = self._writer.get_extra_info("sockname")
        return name[0], name[1]


@asynccontextmanager
async def connect(
    host: str, port: int, context: ssl.SSLContext | None, server_name: str | None = None
) -> AsyncIterator[BrokerConnection]:
    """Connect, and close at the end; with ``context`` through TLS, for ``server_name`` (else ``host``)."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = await open_transport(protocol, host, port, context, server_name)
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    try:
        yield BrokerConnection(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):  # an error of the connection has been raised already
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await writer.wait_closed()
            except TimeoutError:
                transport.abort()


async def open_transport(
    protocol: asyncio.BaseProtocol, host: str, port: int, context: ssl.SSLContext | None, server_name: str | None = None
) -> asyncio.Transport:
    """Connect ``protocol``; with ``context`` through TLS, for ``server_name`` (else ``host``).

    Raises OSError, also if ``host`` and ``port``, which a broker may advertise, are not a valid address.
    """
    if not 0 < port <= _LAST_PORT:  # uvloop would take it modulo 65536
        raise OSError(f"{host!a} port {port} is no address to connect to")
    name = (server_name or host) if context is not None else None
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=context, server_hostname=name)
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


async def ips_of(host: str) -> set[str]:
    """Return the addresses of a host, none if it is not found."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(where[0]) for *_, where in found}
