"""The admin port: HTTP, over TLS if there is any, for Prometheus, orchestrators and operators."""

import asyncio
import ipaddress
import json
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from config.units import Address
from proxy.admin.connections import AdminConnections
from proxy.admin.route import RefusedError, Route, text
from proxy.admin.tls import AdminTls
from proxy.edge.listening import bind as listen_at
from proxy.runtime.faults import report
from quotas.networks import network_of

PROBES: Final = ("/livez", "/readyz")
"""Answered under any name in Host: they tell nothing of clients, and whoever probes may use any name."""
_API: Final = "/api/"
MOST_AT_ONCE: Final = 16
MOST_OF_A_NETWORK: Final = 8
"""So that others are answered too."""

_STOP_TIMEOUT_S: Final = 1.0


class Hosts:
    """The names of the admin port that are accepted in Host: ``hosts``, besides addresses, localhost and the machine's
    own name. By DNS rebinding a foreign web page makes a browser send requests here under the page's own host name.

    Those that clients are told are the operator's own, and nobody else's page is found under them.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_bare(host) for host in (*hosts, "localhost", socket.gethostname()))

    def why_not(self, host: str) -> str | None:
        """Return why a value of Host is refused; None if it is not."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        name = _bare(name.removeprefix("[").removesuffix("]"))
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if name not in self._hosts:
                return f"asked for as {host!a}: use an address, or add the name to admin.hosts, and restart"
        return None


def _bare(host: str) -> str:
    return host.casefold().removesuffix(".")


@dataclass(eq=False)
class Work:
    """The requests that are worked on at once, by the network of who asks: the work for one connection may be much."""

    _by_network: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def place(self, network: str) -> Iterator[None]:
        """Take a place for as long as the work lasts. Raises RefusedError if there is none."""
        if self._by_network.total() >= MOST_AT_ONCE or self._by_network[network] >= MOST_OF_A_NETWORK:
            raise RefusedError(503, "too many requests at once: ask again", **{"Retry-After": "1"})
        self._by_network[network] += 1
        try:
            yield
        finally:
            self._by_network[network] -= 1
            self._by_network += Counter()  # without zeros


@dataclass(eq=False)
class AdminServer:
    """Serves ``_routes`` between ``start`` and ``stop``, to who asks for it by a name of ``_hosts``, and may
    read: otherwise ``_may_read`` raises RefusedError; None: anybody may.
    """

    _bind: Address
    _routes: Mapping[str, Route]
    _hosts: Hosts
    _may_read: Callable[[web.BaseRequest], Awaitable[None]] | None = None
    _tls: AdminTls | None = None
    _work: Work = field(default_factory=Work)

    async def start(self) -> None:
        """Listen. Raises OSError that names the setting and the address."""
        try:
            sockets = listen_at(self._bind.host, self._bind.port)
        except OSError as error:
            # An unresolvable name has a negative errno, or none.
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror
            raise OSError(f"admin.bind {self._bind}: {reason or error}") from error
        self._server = web.Server(self._answer, handler_cancellation=True)  # nobody works for one who has gone
        self._connections = AdminConnections(self._server, self._tls)
        self._connections.acceptor.listen(sockets, None)

    async def stop(self) -> None:
        """Close the port, after the answers in progress (within a second)."""
        self._connections.acceptor.close()
        await asyncio.sleep(0)  # requests received by now are answered
        self._server.pre_shutdown()
        await self._server.shutdown(_STOP_TIMEOUT_S)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        with self._connections.answering(request):
            answer = await self._answered(request)
            with suppress(ConnectionError):  # aiohttp tries again, and handles the error
                await answer.prepare(request)
                await answer.write_eof()
        return answer

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to a request that goes to no route; None if it may go on."""
        if request.path not in PROBES and (why := self._hosts.why_not(request.host)) is not None:
            return _refused(request, 403, why)
        route = self._routes.get(request.path)
        if route is None:
            return text(404, "not found; valid paths:", *self._routes)
        if request.method not in route.methods:
            return text(405, f"{request.method} is not allowed for {request.path}", Allow=", ".join(route.methods))
        return None

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        route = self._routes[request.path]
        try:
            with self._work.place(network_of(request.remote or "")) if route.is_bounded else nullcontext():
                if self._may_read is not None and not route.is_open:
                    await self._may_read(request)
                return await route.handler(request)
        except RefusedError as refused:
            if refused.status == 401 and "text/html" in request.headers.get("Accept", ""):
                return text(303, "log in first", Location="/login")
            return _refused(request, refused.status, str(refused), **refused.headers)
        except Exception as error:  # noqa: BLE001  one broken page must not affect the others
            report(f"admin {request.path}", error)
            return text(500, "internal error: see the log")


def _refused(request: web.BaseRequest, status: int, why: str, **headers: str) -> web.Response:
    """Return why nothing is told: as JSON for the state API."""
    if request.path.startswith(_API):
        said = json.dumps({"error": why})
        return web.Response(status=status, text=said, content_type="application/json", headers=headers)
    return text(status, why, **headers)
