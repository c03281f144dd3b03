"""Connections to the admin port: limits on their number and duration.

Strangers may connect to this port too, and descriptors are shared with Kafka clients; so there are few connections.
When all places are taken, a network with fewer connections gets a place of the one with most.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from config.units import Address
from proxy.admin.tls import AdminTls
from proxy.edge.arrival import HANDSHAKE, Handshake
from proxy.edge.listening import Acceptor
from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import AFTER_FAULT_S, later, spawn
from quotas.networks import network_of

log = structlog.get_logger("sluice.admin")


def _without_requests(record: logging.LogRecord) -> bool:
    """Log an invalid HTTP request as a warning without a traceback: any stranger can send one."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        record.msg, record.args = "%s from a client of the admin port", (type(error).__name__,)
    return True


_log: Final = logging.getLogger("sluice.admin")
_log.addFilter(_without_requests)

MOST: Final = 32
"""Limit of connections; ``proxy.edge.connection_slots`` reserves descriptors for them."""
YOUNG_S: Final = 0.1
"""How long a connection is safe from others of its network, and from networks with as many, so that it gets its answer.
With 320 new ones a second all are young, and the next is refused."""
REQUEST_S: Final = 10.0
"""Time limit for the head of a request."""
ANSWER_S: Final = 60.0
"""Time limit for an answer, until the client has read it."""
SHUTDOWN_S: Final = 1.0
"""Time limit for the end of TLS."""
IDLE_S: Final = 75.0
"""How long an idle connection is kept for its next request."""


class AdminConnections:
    """Accepts connections for ``server``, and limits them."""

    def __init__(self, server: web.Server, tls: AdminTls | None) -> None:
        self._server = server
        self._tls = tls
        self.acceptor = Acceptor("admin", self._take, lambda: None)
        self._open: dict[_Connection, None] = {}
        """By when they began to wait for a request, or to answer one; the longest first."""

    @contextmanager
    def answering(self, request: web.BaseRequest) -> Iterator[None]:
        """Count the request as in progress until its answer is sent."""
        connection = cast("_Connection", request.protocol)
        self._move(connection, ANSWER_S, is_answering=True)
        try:
            yield
        finally:
            self._move(connection, IDLE_S, is_answering=False)
            connection.is_idle = True

    def _take(self, client: socket.socket, peer: Address, node_id: int | None) -> None:  # noqa: ARG002  the Acceptor's signature
        network = network_of(peer.host)
        if len(self._open) >= MOST:
            gives_way = self._gives_way_to(network)
            if gives_way is None:
                client.close()
                return
            gives_way.abort()
        connection = _Connection(self._open, self._server, network)
        self._open[connection] = None
        connection.expect_within(REQUEST_S)
        connection.receive(client, None if self._tls is None else self._tls.context)

    def _gives_way_to(self, network: str) -> "_Connection | None":
        """Return the connection of the network with most that is cut off for one of ``network``; None: it is refused.

        That is the one that has waited longest without a request, else the one that was answered longest ago. The
        young are safe, unless their network takes more places than are left to this one.
        """
        sizes = Counter(each.network for each in self._open)
        largest = max(sizes, key=lambda each: (sizes[each], each == network))
        of_largest = [each for each in self._open if each.network == largest]
        if sizes[network] + 1 >= sizes[largest]:
            of_largest = [each for each in of_largest if monotonic_s() - each.since_s > YOUNG_S]
        return min(of_largest, key=lambda each: each.is_answering, default=None)

    def _move(self, connection: "_Connection", within_s: float, *, is_answering: bool) -> None:
        if connection in self._open:  # it has not been closed meanwhile
            self._open[connection] = self._open.pop(connection)
            connection.is_answering = is_answering
            connection.expect_within(within_s)


class _Connection(web.RequestHandler):
    """A connection of aiohttp's that is aborted if it takes too long."""

    def __init__(self, among: "dict[_Connection, None]", server: web.Server, network: str) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, logger=_log, access_log=None)  # type: ignore[arg-type]  # there is none
        self._among = among
        self.network = network
        self.since_s = monotonic_s()
        self.is_answering = False
        self._receiving: asyncio.Task[object] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.is_idle = False
        """No data has come since the last answer."""

    def receive(self, client: socket.socket, context: ssl.SSLContext | None) -> None:
        self._receiving = spawn(self._received(client, context), "receive a connection to the admin port")
        self._receiving.add_done_callback(lambda _: None if self.transport is not None else self._not_received(client))

    async def _received(self, client: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        if context is None:
            await loop.connect_accepted_socket(lambda: self, client)
            return
        HANDSHAKE.set(Handshake(client))
        try:
            await loop.connect_accepted_socket(
                lambda: self, client, ssl=context, ssl_handshake_timeout=REQUEST_S, ssl_shutdown_timeout=SHUTDOWN_S
            )
        except (OSError, ValueError) as error:  # any stranger can cause it
            log.debug("no TLS at the admin port", error=str(error))

    def _not_received(self, client: socket.socket) -> None:
        client.close()
        self.connection_lost(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._among.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            self.is_idle = False
            self.expect_within(REQUEST_S)
        super().data_received(data)

    def expect_within(self, within_s: float) -> None:
        """Abort the connection unless the next event comes in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        again = partial(self.expect_within, AFTER_FAULT_S)
        self._deadline = later(within_s, "a connection to the admin port is overdue", self.abort, otherwise=again)

    def abort(self) -> None:
        self._among.pop(self, None)  # at once: its slot is given to another
        if self.transport is not None:
            self.transport.abort()
        elif self._receiving is not None:
            self._receiving.cancel()
