"""``/metrics``, rendered once for all scrapes that wait for it."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

from aiohttp import web

from proxy.admin.metrics import CONTENT_TYPE, Renderer
from proxy.admin.route import Route
from proxy.runtime.tasks import spawn
from proxy.snapshot import Snapshot


class Scrapes:
    """``snapshot`` is called on the loop, once for all scrapes that wait at that moment."""

    def __init__(self, snapshot: Callable[[], Awaitable[Snapshot]], renderer: Renderer) -> None:
        self._snapshot = snapshot
        self._renderer = renderer
        self._rendering: asyncio.Task[bytes] | None = None
        self._waiting = 0
        """Scrapes that wait for it; if there are none any more, it ends without its text."""

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
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
        # A flood of clients makes a snapshot of many objects, which live until it is rendered: garbage collections in
        # between would stop the loop several times and free nothing.
        gc.disable()
        try:
            snapshot = await self._snapshot()
            await asyncio.to_thread(self._renderer.take, snapshot)  # whoever waits: it was counted, and is no more
            return await asyncio.to_thread(self._renderer.text, snapshot) if self._waiting else b""
        finally:
            gc.enable()
