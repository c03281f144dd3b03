"""What programs ask the admin port: whether it lives and is ready, metrics, the state as JSON (docs/api.md), and what
other instances of the group ask.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from proxy.admin.metrics import CONTENT_TYPE, Renderer
from proxy.admin.openapi import document
from proxy.admin.route import POST, RefusedError, Route, read_body, text
from proxy.runtime.tasks import spawn
from proxy.snapshot import Snapshot
from proxy.state.answers import State
from proxy.state.paging import BadParameterError
from proxy.state.resources import RESOURCES

API: Final = "/api/v1/"
_OPENAPI: Final = "openapi.json"
_OF_PROBE: Final = "owners"
"""Other instances ask for it, to see whether this one is alive."""
_MOST_CHANGE_BYTES: Final = 64 * 1024
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}

Said = Callable[[], Awaitable[list[str]]]


def health(not_ready: Said, remarks: Said) -> dict[str, Route]:
    """Return the probes of orchestrators and load balancers.

    ``not_ready`` returns the reasons why the proxy is not ready, none if it is; ``remarks`` what is wrong while it is.
    """

    async def livez(_: web.BaseRequest) -> web.Response:
        return text(200, "ok")

    async def readyz(request: web.BaseRequest) -> web.Response:
        reasons = [" ".join(reason.splitlines()) for reason in await not_ready()]
        status = 503 if reasons else 200
        found = [] if reasons else await remarks()
        if "application/json" not in request.headers.get("Accept", ""):
            return text(status, *(reasons or ["ready", *found]))
        said = {"ready": not reasons, "reasons": reasons} | ({"remarks": found} if found else {})
        return web.Response(status=status, text=json.dumps(said), content_type="application/json")

    routes = {"/livez": livez, "/readyz": readyz}
    return {path: Route(probe, is_bounded=False, is_open=True) for path, probe in routes.items()}


@dataclass(eq=False)
class Scrapes:
    """``/metrics``, rendered once for all scrapes that wait for it; ``_snapshot`` is called on the loop."""

    _snapshot: Callable[[], Awaitable[Snapshot]]
    _renderer: Renderer
    _rendering: asyncio.Task[bytes] | None = None
    _waiting: int = 0
    """Scrapes that wait for it; if there are none any more, it ends without its text."""

    def routes(self) -> dict[str, Route]:
        return {"/metrics": Route(self._metrics)}

    async def _metrics(self, _: web.BaseRequest) -> web.Response:
        if self._rendering is None or self._rendering.done():
            self._rendering = spawn(self._render(), "render metrics")
        self._waiting += 1
        try:
            body = await asyncio.shield(self._rendering)  # for the others
        finally:
            self._waiting -= 1
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _render(self) -> bytes:
        snapshot = await self._snapshot()
        await asyncio.to_thread(self._renderer.take, snapshot)  # whoever waits: it was counted, and is no more
        return await asyncio.to_thread(self._renderer.text, snapshot) if self._waiting else b""


def api(state: State) -> dict[str, Route]:
    async def answer(resource: str, request: web.BaseRequest) -> web.Response:
        try:
            return await _json(await state.ask(resource, _parameters(request)))
        except BadParameterError as error:
            return await _json({"error": str(error)}, error.status)

    async def openapi(_: web.BaseRequest) -> web.Response:
        return await _json(document())

    routes = {f"{API}{name}": Route(partial(answer, name), is_bounded=name != _OF_PROBE) for name in RESOURCES}
    return routes | {f"{API}{_OPENAPI}": Route(openapi)}


def _parameters(request: web.BaseRequest) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for name, value in request.query.items():
        if name in parameters:
            raise BadParameterError(f"{name[:64]!a} is given twice; give it once")
        parameters[name] = value
    return parameters


async def _json(data: dict[str, Any], status: int = 200) -> web.Response:
    body = await asyncio.to_thread(orjson.dumps, data)
    return web.Response(status=status, body=body, content_type="application/json", headers=_HEADERS)


def of_instances(
    demand: Callable[[Mapping[str, str]], bytes | None], hear: Callable[[bytes], Awaitable[None]]
) -> dict[str, Route]:
    """Return what only other instances of the group ask: all of it is signed with the group's secret.

    ``demand`` returns what is used of limits of the whole cluster, signed for the instance that asks, None without
    other instances; ``hear`` makes a change that another instance tells, and raises RefusedError.
    """

    async def tell_demand(request: web.BaseRequest) -> web.Response:
        said = demand(request.query)
        if said is None:
            return text(404, "there are no other instances: see owners.group")
        return web.Response(body=said, content_type="application/octet-stream")

    async def hear_change(request: web.BaseRequest) -> web.Response:
        # To its end, as a change that an operator makes here.
        return await asyncio.shield(spawn(heard(request), "make a change"))

    async def heard(request: web.BaseRequest) -> web.Response:
        try:
            await hear(await read_body(request, _MOST_CHANGE_BYTES))
        except RefusedError as refused:
            return text(refused.status, str(refused))
        return text(200, "done")

    return {
        "/owners/demand": Route(tell_demand, is_bounded=False, is_open=True),
        "/owners/change": Route(hear_change, POST, is_open=True),
    }
