"""What only other instances of the group ask."""

from collections.abc import Callable, Mapping

from aiohttp import web

from proxy.admin.route import Route, text


class InstancePages:
    """``demand`` returns what is used of limits of the whole cluster, signed for the instance that asks."""

    def __init__(self, demand: Callable[[Mapping[str, str]], bytes | None]) -> None:
        self._demand = demand

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        return {"/owners/demand": Route(self._tell_demand, is_bounded=False)}

    async def _tell_demand(self, request: web.BaseRequest) -> web.Response:
        said = self._demand(request.query)
        if said is None:
            return text(404, "there are no other instances: see owners.group")
        return web.Response(body=said, content_type="application/octet-stream")
