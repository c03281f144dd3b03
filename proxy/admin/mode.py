"""``/mode`` on the admin port: shows and switches the quota mode (``proxy.admin.access`` says who may)."""

import json
from collections.abc import Awaitable
from typing import Final, Protocol, get_args

from aiohttp import web

from config.settings import Mode
from proxy.admin.access import Access
from proxy.admin.route import RefusedError

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_MOST_BYTES: Final = 64
_HOW: Final = "write one word as the body: enforce, shadow or off"


class Switch(Protocol):
    """The part of ``proxy.control.mode.ModeSwitch`` that this page uses."""

    configured: Mode
    mode: Mode

    def turn(self, mode: Mode, *, who: str, source: str) -> Awaitable[Mode]: ...


class ModePage:
    """Answers GET and POST of ``/mode``."""

    METHODS: Final = ("GET", "HEAD", "POST")

    def __init__(self, switch: Switch, access: Access) -> None:
        self._switch = switch
        self._access = access

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Return the mode, or switch it."""
        if request.method != "POST":
            return _json({"mode": self._switch.mode, "configured": self._switch.configured})
        return await self._access.change(request, "mode", self._turn)

    async def _turn(self, request: web.BaseRequest, who: str) -> web.Response:
        mode = await _wanted(request)
        before = await self._switch.turn(mode, who=who, source=str(request.remote))
        return _json({"mode": mode, "before": before, "configured": self._switch.configured})


async def _wanted(request: web.BaseRequest) -> Mode:
    said = b""
    while len(said) <= _MOST_BYTES and (more := await request.content.read(_MOST_BYTES + 1 - len(said))):
        said += more
    word = said.strip().decode(errors="replace").removeprefix("mode=")  # as the page's form writes it
    for mode in MODES:
        if word == mode:
            return mode
    raise RefusedError(400, f"{word[:_MOST_BYTES]!a} is not a mode: {_HOW}")


def _json(said: dict[str, str]) -> web.Response:
    return web.Response(text=json.dumps(said) + "\n", content_type="application/json")
