"""Routes of the admin port: a handler for each path; and how requests are refused."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from aiohttp import web

GET: Final[tuple[str, ...]] = ("GET", "HEAD")
POST: Final[tuple[str, ...]] = ("POST",)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """The handler of a path, and the methods that are allowed."""

    handler: Handler
    methods: tuple[str, ...] = GET
    is_bounded: bool = True
    """Whether it is one of the requests that few are worked on at once (``proxy.admin.server``)."""
    is_open: bool = False
    """Whether it checks by itself who asks, or tells nothing of clients."""


class RefusedError(Exception):
    """A request is refused; the text says why, and what to do."""

    def __init__(self, status: int, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers


async def read_body(request: web.BaseRequest, most_bytes: int) -> bytes:
    """Return the body of a request. Raises RefusedError if it is too large."""
    body = b""
    while more := await request.content.read(most_bytes + 1 - len(body)):
        body += more
        if len(body) > most_bytes:
            raise RefusedError(413, f"at most {most_bytes} bytes can be sent here")
    return body


def text(status: int, *lines: str, **headers: str) -> web.Response:
    return web.Response(status=status, text="\n".join(lines) + "\n", headers=headers)
