"""What only other instances of the group ask: all of it is signed with the group's secret."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from proxy.admin.route import RefusedError, Route, read_body, text
from proxy.runtime.tasks import spawn

_MOST_BYTES: Final = 64 * 1024


class InstancePages:
    """``demand`` returns what is used of limits of the whole cluster, signed for the instance that asks, None without
    other instances; ``hear`` makes a change that another instance tells, and raises RefusedError.
    """

    def __init__(
        self, demand: Callable[[Mapping[str, str]], bytes | None], hear: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._demand = demand
        self._hear = hear

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        return {
            "/owners/demand": Route(self._tell_demand, is_bounded=False, is_open=True),
            "/owners/change": Route(self._hear_change, ("POST",), is_open=True),
        }

    async def _tell_demand(self, request: web.BaseRequest) -> web.Response:
        said = self._demand(request.query)
        if said is None:
            return text(404, "there are no other instances: see owners.group")
        return web.Response(body=said, content_type="application/octet-stream")

    async def _hear_change(self, request: web.BaseRequest) -> web.Response:
        # To its end, as a change that an operator makes here.
        return await asyncio.shield(spawn(self._heard(request), "make a change"))

    async def _heard(self, request: web.BaseRequest) -> web.Response:
        try:
            await self._hear(await read_body(request, _MOST_BYTES))
        except RefusedError as refused:
            return text(refused.status, str(refused))
        return text(200, "done")
