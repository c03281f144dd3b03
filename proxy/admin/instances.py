"""Questions of other instances, and about them."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from proxy.admin.route import Route, text


class InstancePages:
    """``changes`` returns the last changes of quotas as JSON data, ``owners`` the membership in a group, if there is
    one, and ``demand`` what is used of limits of the whole cluster, signed for the instance that asks.
    """

    def __init__(
        self,
        changes: Callable[[], Sequence[Mapping[str, Any]]],
        owners: Callable[[], Awaitable[Mapping[str, Any] | None]],
        demand: Callable[[Mapping[str, str]], bytes | None],
    ) -> None:
        self._changes = changes
        self._owners = owners
        self._demand = demand

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        return {
            "/quotas/changes": Route(self._quota_changes),
            "/owners": Route(self._who_owns),
            "/owners/demand": Route(self._tell_demand, is_bounded=False),
        }

    async def _quota_changes(self, _: web.BaseRequest) -> web.Response:
        return web.Response(text=json.dumps({"changes": self._changes()}) + "\n", content_type="application/json")

    async def _who_owns(self, _: web.BaseRequest) -> web.Response:
        said = await self._owners()
        if said is None:
            return text(404, "no owners are elected here: see owners.group")
        return web.Response(text=json.dumps(said) + "\n", content_type="application/json")

    async def _tell_demand(self, request: web.BaseRequest) -> web.Response:
        said = self._demand(request.query)
        if said is None:
            return text(404, "there are no other instances: see owners.group")
        return web.Response(body=said, content_type="application/octet-stream")
