"""``/mode`` on the admin port: shows and switches the quota mode, the only thing that can be changed here.

It requires a token (``admin.token_file``), and a known name in Host.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, Protocol, get_args

import structlog
from aiohttp import web

from config.files import read_file
from config.settings import Mode
from proxy.admin.hosts import Hosts

log = structlog.get_logger("sluice.admin")

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_MOST_BYTES: Final = 64
_HOW: Final = "write one word as the body: enforce, shadow or off"


class Switch(Protocol):
    """The part of ``proxy.control.mode.ModeSwitch`` that this page uses."""

    configured: Mode
    mode: Mode

    def turn(self, mode: Mode, *, who: str, source: str) -> Awaitable[Mode]: ...


class _RefusedError(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ModePage:
    """Answers GET and POST of ``/mode``."""

    METHODS: Final = ("GET", "HEAD", "POST")

    def __init__(self, switch: Switch, token_file: Path | None, hosts: Hosts) -> None:
        self._switch = switch
        self._token_file = token_file
        self._hosts = hosts

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Return the mode, or switch it."""
        if request.method != "POST":
            return _json({"mode": self._switch.mode, "configured": self._switch.configured})
        try:
            await self._require_token(request)
            mode = await _wanted(request)
        except _RefusedError as refused:
            log.warning("change of mode refused", source=request.remote, status=refused.status, why=str(refused))
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
            return web.Response(status=refused.status, text=f"{refused}\n", headers=headers)
        before = await self._switch.turn(mode, who="admin token", source=str(request.remote))
        return _json({"mode": mode, "before": before, "configured": self._switch.configured})

    async def _require_token(self, request: web.BaseRequest) -> None:
        if self._token_file is None:
            raise _RefusedError(
                403, "the mode cannot be changed here: set admin.token_file to a file with a token, and restart"
            )
        if (why := self._hosts.why_not(request.host)) is not None:
            raise _RefusedError(403, why)
        try:
            # Read each time, so that replacing or removing a token takes effect at once.
            token = (await asyncio.to_thread(read_file, self._token_file)).strip()
        except OSError as error:
            raise _RefusedError(503, f"admin.token_file cannot be read: {error.strerror}") from None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if not token:
            raise _RefusedError(503, "admin.token_file is empty: write a token into it")
        if scheme.casefold() != "bearer" or not hmac.compare_digest(given.strip().encode(errors="replace"), token):
            raise _RefusedError(401, "write the token of admin.token_file: Authorization: Bearer TOKEN")


async def _wanted(request: web.BaseRequest) -> Mode:
    said = b""
    while len(said) <= _MOST_BYTES and (more := await request.content.read(_MOST_BYTES + 1 - len(said))):
        said += more
    word = said.strip().decode(errors="replace")
    for mode in MODES:
        if word == mode:
            return mode
    raise _RefusedError(400, f"{word[:_MOST_BYTES]!a} is not a mode: {_HOW}")


def _json(said: dict[str, str]) -> web.Response:
    return web.Response(text=json.dumps(said) + "\n", content_type="application/json")
