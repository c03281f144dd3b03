"""Pages that are open: their live part is sent every two seconds (server-sent events), and made once for all who see
the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from proxy.page.html import HEADERS, encoded
from proxy.runtime.clock import monotonic_s, wall_s
from proxy.runtime.tasks import SharedWork

MOST_STREAMS: Final = 8
"""The other connections of the admin port (``proxy.admin.connections``) are left to Prometheus and operators."""
EVERY_S: Final = 2.0
_EVENTS: Final = 25
"""Then the stream ends, before the admin port's time limit for an answer; the browser connects again."""
_RETRY_MS: Final = 500
_LATE_S: Final = 0.02
"""A timer may fire a little early; without this, it would fire again for the same second."""
_MOST_ANSWERS: Final = 64


@dataclass(eq=False)
class RecentAnswers:
    """Answers by key, kept for a moment."""

    _clock: Callable[[], float] = monotonic_s
    _kept: dict[Hashable, tuple[float, SharedWork[Any]]] = field(default_factory=dict)

    async def get(self, key: Hashable, keep_s: float, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return what ``make`` returned for this key, if that is recent, else call it. Raises as ``make``."""
        now_s = self._clock()
        until_s, work = self._kept.get(key, (now_s, None))
        if work is None or work.is_given_up or now_s >= until_s:
            self._kept = {each: kept for each, kept in self._kept.items() if now_s < kept[0]}
            if len(self._kept) >= _MOST_ANSWERS:
                self._kept.clear()
            work = SharedWork(make())
            self._kept[key] = now_s + keep_s, work
        return await work.result()


async def _until_the_next_turn() -> None:
    """Wait for the next even second: all streams together, so that the state is asked for once."""
    await asyncio.sleep(EVERY_S - wall_s() % EVERY_S + _LATE_S)


@dataclass(eq=False)
class Streams:
    """Sends events to at most ``MOST_STREAMS`` pages; ``_pause`` waits for the next event's turn."""

    _pause: Callable[[], Awaitable[None]] = _until_the_next_turn
    open: int = 0

    async def answer(self, request: web.BaseRequest, render: Callable[[], Awaitable[str]]) -> web.StreamResponse:
        """Send what ``render`` returns, again and again, until the stream is old or the browser has gone."""
        if self.open >= MOST_STREAMS:
            return web.Response(status=503, text=f"{MOST_STREAMS} pages are live already\n", headers=HEADERS)
        stream = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream; charset=utf-8"})
        self.open += 1
        try:
            await stream.prepare(request)
            await stream.write(f"retry: {_RETRY_MS}\n\n".encode())
            for _ in range(_EVENTS):
                await self._pause()
                await stream.write(_event(await render()))
        except ConnectionError:
            pass  # the page was closed
        finally:
            self.open -= 1
        return stream


def _event(html: str) -> bytes:
    lines = "\n".join(f"data: {line}" for line in html.splitlines())
    return encoded(f"event: live\n{lines}\n\n")
