"""``/livez`` and ``/readyz``, for orchestrators and load balancers."""

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from proxy.admin.route import Route, text


class Health:
    """``not_ready`` returns the reasons why the proxy is not ready, none if it is; ``remarks`` what is wrong while it
    is.
    """

    def __init__(
        self, not_ready: Callable[[], Awaitable[list[str]]], remarks: Callable[[], Awaitable[list[str]]]
    ) -> None:
        self._not_ready = not_ready
        self._remarks = remarks

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        return {"/livez": Route(self._livez, is_open=True), "/readyz": Route(self._readyz, is_open=True)}

    async def _livez(self, _: web.BaseRequest) -> web.Response:
        return text(200, "ok")

    async def _readyz(self, request: web.BaseRequest) -> web.Response:
        reasons = [" ".join(reason.splitlines()) for reason in await self._not_ready()]
        status = 503 if reasons else 200
        remarks = [] if reasons else await self._remarks()
        if "application/json" in request.headers.get("Accept", ""):
            return web.Response(
                status=status,
                text=json.dumps({"ready": not reasons, "reasons": reasons} | ({"remarks": remarks} if remarks else {})),
                content_type="application/json",
            )
        return text(status, *(reasons or ["ready", *remarks]))
