"""Connections to the admin port: limits on their number and duration.

Strangers may connect to this port too, and descriptors are shared with Kafka clients; so there are few connections, and
a new one evicts the one that has waited longest without a request.
"""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

from aiohttp import web

from config.units import Address
from proxy.edge.accepting import Acceptor
from proxy.runtime.tasks import AFTER_FAULT_S, later, spawn

MOST: Final = 32
"""Limit of connections; ``proxy.edge.descriptors`` reserves descriptors for them."""
REQUEST_S: Final = 10.0
"""Time limit for the head of a request."""
ANSWER_S: Final = 60.0
"""Time limit for an answer, until the client has read it."""
IDLE_S: Final = 75.0
"""How long an idle connection is kept for its next request."""


class AdminConnections:
    """Accepts connections for ``server``, and limits them."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._acceptor = Acceptor("admin", self._take, lambda: None)
        self._waiting: dict[_Connection, None] = {}
        """Connections without a request, longest waiting first."""
        self._answering: dict[_Connection, None] = {}
        """Connections whose answer is in progress, oldest first."""
        self._by_transport: dict[asyncio.BaseTransport | None, _Connection] = {}

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from listening sockets, and own them."""
        self._acceptor.listen(sockets, None)

    def close(self) -> None:
        """Stop accepting."""
        self._acceptor.close()

    @contextmanager
    def answering(self, request: web.BaseRequest) -> Iterator[None]:
        """Count the request as in progress until its answer is sent."""
        connection = self._by_transport.get(request.transport)
        if connection is None:  # it has been closed
            yield
            return
        self._move(connection, self._waiting, self._answering, ANSWER_S)
        try:
            yield
        finally:
            self._move(connection, self._answering, self._waiting, IDLE_S)
            connection.is_idle = True

    def made(self, connection: "_Connection", transport: asyncio.Transport) -> None:
        """Register a new connection; at the limit, abort the one that has waited longest."""
        if len(self._by_transport) >= MOST:
            next(iter(self._waiting or self._answering)).abort()
        self._by_transport[transport] = connection
        self._waiting[connection] = None
        connection.expect_within(REQUEST_S)

    def lost(self, connection: "_Connection") -> None:
        """Remove a connection."""
        self._by_transport.pop(connection.transport, None)
        self._waiting.pop(connection, None)
        self._answering.pop(connection, None)

    def _take(self, client: socket.socket, peer: Address, node_id: int | None) -> None:  # noqa: ARG002  the Acceptor's signature
        serving = asyncio.get_running_loop().connect_accepted_socket(lambda: _Connection(self, self._server()), client)
        task = spawn(serving, "receive a connection to the admin port")
        task.add_done_callback(lambda _: client.close() if task.cancelled() or task.exception() else None)

    def _move(
        self,
        connection: "_Connection",
        source: "dict[_Connection, None]",
        target: "dict[_Connection, None]",
        within_s: float,
    ) -> None:
        if connection in source:
            del source[connection]
            target[connection] = None
            connection.expect_within(within_s)


class _Connection(asyncio.Protocol):
    """Forwards events to aiohttp's protocol, and aborts a connection that takes too long."""

    def __init__(self, among: AdminConnections, behind: asyncio.Protocol) -> None:
        self._among = among
        self._behind = behind
        self._deadline: asyncio.TimerHandle | None = None
        self.is_idle = False
        """No data has come since the last answer."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit it
        self._among.made(self, self.transport)
        self._behind.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._among.lost(self)
        self._behind.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            self.is_idle = False
            self.expect_within(REQUEST_S)
        self._behind.data_received(data)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received()

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()

    def expect_within(self, within_s: float) -> None:
        """Abort the connection unless the next event comes in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = later(within_s, "a connection to the admin port is overdue", self.abort, otherwise=self._again)

    def _again(self) -> None:
        """Retry the abort after a failure."""
        self.expect_within(AFTER_FAULT_S)

    def abort(self) -> None:
        """Cut the connection off."""
        self._among.lost(self)  # at once: its slot is given to another
        if self.transport is not None:
            self.transport.abort()
