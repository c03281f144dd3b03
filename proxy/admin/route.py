"""What the admin port answers: a handler for each path."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from aiohttp import web

METHODS: Final[tuple[str, ...]] = ("GET", "HEAD")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """Who answers a path, and the methods that are allowed."""

    handler: Handler
    methods: tuple[str, ...] = METHODS
    is_bounded: bool = True
    """Whether it is one of the requests that few are worked on at once (``proxy.admin.work``)."""


def text(status: int, *lines: str, **headers: str) -> web.Response:
    """Return an answer of plain lines."""
    return web.Response(status=status, text="\n".join(lines) + "\n", headers=headers)
