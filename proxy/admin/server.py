"""The admin port: plain HTTP for Prometheus and orchestrators; ``/mode``, ``/quotas/changes``, the state API and the
page for operators.
"""

import asyncio
import gc
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from config.units import Address
from proxy.admin.api import Api
from proxy.admin.connections import AdminConnections
from proxy.admin.metrics import CONTENT_TYPE, Renderer
from proxy.admin.mode import ModePage
from proxy.edge.listening import bind as listen_at
from proxy.edge.stats import Snapshot
from proxy.runtime.faults import note
from proxy.runtime.tasks import spawn

METHODS: Final[tuple[str, ...]] = ("GET", "HEAD")

# A scrape has a few short headers, the state API a line with names; only ``/mode`` reads a body, of one word.
_MAX_LINE_BYTES: Final = 8190
_MAX_HEADER_BYTES: Final = 8190
_STOP_TIMEOUT_S: Final = 1.0


def _without_requests(record: logging.LogRecord) -> bool:
    """Log an invalid HTTP request as a warning without a traceback: any stranger can send one."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        record.msg, record.args = "%s from a client of the admin port", (type(error).__name__,)
    return True


_log: Final = logging.getLogger("sluice.admin")
_log.addFilter(_without_requests)


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """The handler of a path, and the methods that are allowed."""

    handler: Handler
    methods: tuple[str, ...] = METHODS


class AdminServer:
    """Serves on ``bind`` between ``start`` and ``stop``.

    ``snapshot`` is called on the loop, once for all scrapes that wait at that moment; ``not_ready`` returns the reasons
    why the proxy is not ready, none if it is; ``mode`` answers ``/mode``, if it can be switched; ``changes`` returns
    the last changes of quotas as JSON data, ``owners`` the membership in a group of instances, if there is one, and
    ``demand`` what is used of limits of the whole cluster, signed for the instance that asks. ``api`` answers the state
    API, and ``pages`` have more paths (``proxy.page``). ``remarks`` returns what is wrong while the proxy is ready.
    """

    def __init__(
        self,
        bind: Address,
        snapshot: Callable[[], Awaitable[Snapshot]],
        not_ready: Callable[[], Awaitable[list[str]]],
        renderer: Renderer,
        mode: ModePage | None = None,
        changes: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
        owners: Callable[[], Awaitable[Mapping[str, Any] | None]] | None = None,
        demand: Callable[[Mapping[str, str]], bytes | None] = lambda _: None,
        api: Api | None = None,
        pages: Mapping[str, Route] | None = None,
        remarks: Callable[[], Awaitable[list[str]]] | None = None,
    ) -> None:
        self._bind = bind
        self._snapshot = snapshot
        self._not_ready = not_ready
        self._remarks = remarks
        self._renderer = renderer
        self._changes = changes
        self._owners = owners
        self._demand = demand
        self._rendering: asyncio.Task[bytes] | None = None
        handlers: dict[str, Handler] = {
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/quotas/changes": self._quota_changes,
            "/owners": self._who_owns,
            "/owners/demand": self._tell_demand,
            **({} if api is None else api.paths),
        }
        self._routes = {path: Route(handler) for path, handler in handlers.items()}
        if mode is not None:
            self._routes["/mode"] = Route(mode.answer, ModePage.METHODS)
        self._routes.update(pages or {})

    async def start(self) -> None:
        """Listen. Raises OSError that names the setting and the address."""
        try:
            sockets = listen_at(self._bind.host, self._bind.port)
        except OSError as error:
            # An unresolvable name has a negative errno, or none.
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror
            raise OSError(f"admin.bind {self._bind}: {reason or error}") from error
        self._server = web.Server(
            self._answer,
            access_log=None,
            logger=_log,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )
        self._connections = AdminConnections(self._server)
        self._connections.listen(sockets)

    async def stop(self) -> None:
        """Close the port, after the answers in progress (within a second)."""
        self._connections.close()
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

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        route = self._routes.get(request.path)
        if route is None:
            return _text(404, ["not found; valid paths:", *self._routes])
        if request.method not in route.methods:
            return _text(405, [f"{request.method} is not allowed for {request.path}"], Allow=", ".join(route.methods))
        try:
            return await route.handler(request)
        except Exception as error:  # noqa: BLE001  one broken page must not affect the others
            note(f"admin {request.path}", error)
            return _text(500, ["internal error: see the log"])

    async def _metrics(self, _: web.BaseRequest) -> web.Response:
        if self._rendering is None or self._rendering.done():
            self._rendering = spawn(self._render(), "render metrics")
        # Shielded: a scraper that gives up must not cancel the rendering for others.
        text = await asyncio.shield(self._rendering)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def _render(self) -> bytes:
        # A flood of clients makes a snapshot of many objects, which live until it is rendered: garbage collections in
        # between would stop the loop several times and free nothing.
        gc.disable()
        try:
            return await asyncio.to_thread(self._renderer.render, await self._snapshot())
        finally:
            gc.enable()

    async def _livez(self, _: web.BaseRequest) -> web.Response:
        return _text(200, ["ok"])

    async def _readyz(self, request: web.BaseRequest) -> web.Response:
        reasons = [" ".join(reason.splitlines()) for reason in await self._not_ready()]
        status = 503 if reasons else 200
        remarks = [] if reasons or self._remarks is None else await self._remarks()
        if "application/json" in request.headers.get("Accept", ""):
            return web.Response(
                status=status,
                text=json.dumps({"ready": not reasons, "reasons": reasons} | ({"remarks": remarks} if remarks else {})),
                content_type="application/json",
            )
        return _text(status, reasons or ["ready", *remarks])

    async def _quota_changes(self, _: web.BaseRequest) -> web.Response:
        return web.Response(text=json.dumps({"changes": self._changes()}) + "\n", content_type="application/json")

    async def _who_owns(self, _: web.BaseRequest) -> web.Response:
        said = None if self._owners is None else await self._owners()
        if said is None:
            return _text(404, ["no owners are elected here: see owners.group"])
        return web.Response(text=json.dumps(said) + "\n", content_type="application/json")

    async def _tell_demand(self, request: web.BaseRequest) -> web.Response:
        said = self._demand(request.query)
        if said is None:
            return _text(404, ["there are no other instances: see owners.group"])
        return web.Response(body=said, content_type="application/octet-stream")


def _text(status: int, lines: list[str], **headers: str) -> web.Response:
    return web.Response(status=status, text="\n".join(lines) + "\n", headers=headers)
