"""``/api/v1/…`` on the admin port: the state, as JSON (docs/api.md)."""

import asyncio
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from proxy.admin.openapi import document
from proxy.admin.route import Route
from proxy.state.answers import State
from proxy.state.paging import BadParameterError, NotFoundError
from proxy.state.resources import RESOURCES

PREFIX: Final = "/api/v1/"
_OPENAPI: Final = "openapi.json"
_OF_PROBE: Final = "owners"
"""Other instances ask for it, to see whether this one is alive."""
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Api:
    """Answers the paths of the state API."""

    def __init__(self, state: State) -> None:
        self._state = state

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        names = (*RESOURCES, _OPENAPI)
        return {f"{PREFIX}{name}": Route(partial(self._answer, name), is_bounded=name != _OF_PROBE) for name in names}

    async def _answer(self, resource: str, request: web.BaseRequest) -> web.Response:
        if resource == _OPENAPI:
            return await _json(document())
        try:
            return await _json(await self._state.ask(resource, _parameters(request)))
        except BadParameterError as error:
            return await _json({"error": str(error)}, 400)
        except NotFoundError as error:
            return await _json({"error": str(error)}, 404)


def _parameters(request: web.BaseRequest) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for name, value in request.query.items():
        if name in parameters:
            raise BadParameterError(f"{name[:64]!a} is given twice; give it once")
        parameters[name] = value
    return parameters


async def _json(data: dict[str, Any], status: int = 200) -> web.Response:
    body = await asyncio.to_thread(orjson.dumps, data)
    return web.Response(status=status, body=body, content_type="application/json", headers=HEADERS)
