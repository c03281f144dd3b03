"""Connections to the admin port: how many there may be, and how long each may take.

Strangers may come to this port too, and descriptors are shared with the clients of Kafka: so there are few connections,
and where one more comes the one goes that has waited longest without a request.
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
"""Connections at once; ``proxy.edge.descriptors`` keeps descriptors for them."""
REQUEST_S: Final = 10.0
"""How long the head of a request may take."""
ANSWER_S: Final = 60.0
"""How long an answer may take, until the client has taken it."""
IDLE_S: Final = 75.0
"""How long a connection is kept for its next request."""


class AdminConnections:
    """Accepts connections for ``server``."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._acceptor = Acceptor("admin", self._take, lambda: None)
        self._waiting: dict[_Connection, None] = {}
        """Those without a request, in the order in which they began to wait."""
        self._answering: dict[_Connection, None] = {}
        """Those whose answer is under way, likewise."""
        self._by_transport: dict[asyncio.BaseTransport | None, _Connection] = {}

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from sockets that listen, and own them."""
        self._acceptor.listen(sockets, None)

    def close(self) -> None:
        """Accept no further connection."""
        self._acceptor.close()

    @contextmanager
    def answering(self, request: web.BaseRequest) -> Iterator[None]:
        """Count the request as under way, until its answer has been taken."""
        connection = self._by_transport.get(request.transport)
        if connection is None:  # it has gone
            yield
            return
        self._move(connection, self._waiting, self._answering, ANSWER_S)
        try:
            yield
        finally:
            self._move(connection, self._answering, self._waiting, IDLE_S)
            connection.is_idle = True

    def made(self, connection: "_Connection", transport: asyncio.Transport) -> None:
        """Take note of a new connection; one that has waited longest makes room for it."""
        if len(self._by_transport) >= MOST:
            next(iter(self._waiting or self._answering)).abort()
        self._by_transport[transport] = connection
        self._waiting[connection] = None
        connection.expect_within(REQUEST_S)

    def lost(self, connection: "_Connection") -> None:
        """Forget a connection."""
        self._by_transport.pop(connection.transport, None)
        self._waiting.pop(connection, None)
        self._answering.pop(connection, None)

    def _take(self, client: socket.socket, peer: Address, node_id: int | None) -> None:  # noqa: ARG002  as an Acceptor gives them
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
    """Passes on to aiohttp's protocol what happens, and ends a connection that takes too long."""

    def __init__(self, among: AdminConnections, behind: asyncio.Protocol) -> None:
        self._among = among
        self._behind = behind
        self._deadline: asyncio.TimerHandle | None = None
        self.is_idle = False
        """Nothing has come since the last answer."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
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
        """Be cut off unless what is expected next has come in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = later(within_s, "a connection to the admin port is overdue", self.abort, otherwise=self._again)

    def _again(self) -> None:
        """Cut it off in a while: to cut it off has failed."""
        self.expect_within(AFTER_FAULT_S)

    def abort(self) -> None:
        """Cut the connection off."""
        self._among.lost(self)  # at once: another has its place already
        if self.transport is not None:
            self.transport.abort()
