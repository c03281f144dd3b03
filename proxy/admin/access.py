"""Changes over the admin port are allowed to holders of the token, and to browsers that have logged in with it.

Requests that a browser sends from another origin are refused.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from config.files import read_file
from proxy.runtime.clock import wall_s
from proxy.runtime.tasks import spawn

log = structlog.get_logger("sluice.admin")

COOKIE: Final = "sluice_login"
LOGIN_S: Final = 8 * 3600
TOKEN: Final = "admin token"  # noqa: S105  a name for the log
LOGIN: Final = "admin login"


class RefusedError(Exception):
    """A request is refused; the text says why, and what to do."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Access:
    """Checks requests for changes. ``token_file`` is read for each."""

    def __init__(self, token_file: Path | None, clock: Callable[[], float] = wall_s) -> None:
        self._token_file = token_file
        self._clock = clock

    @property
    def is_possible(self) -> bool:
        """There is a token, without which nothing can be changed."""
        return self._token_file is not None

    async def change(
        self,
        request: web.BaseRequest,
        what: str,
        act: Callable[[web.BaseRequest, str], Awaitable[web.Response]],
    ) -> web.Response:
        """Return what ``act`` answers to who asks, for the log; refusals, also those that it raises, are logged."""
        # To its end, even if nobody waits for the answer any more: half a change would be worse.
        return await asyncio.shield(spawn(self._changed(request, what, act), "make a change"))

    async def _changed(
        self, request: web.BaseRequest, what: str, act: Callable[[web.BaseRequest, str], Awaitable[web.Response]]
    ) -> web.Response:
        try:
            return await act(request, await self._who(request))
        except RefusedError as refused:
            log.warning("change refused", what=what, source=request.remote, status=refused.status, why=str(refused))
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
            return web.Response(status=refused.status, text=f"{refused}\n", headers=headers)

    async def _who(self, request: web.BaseRequest) -> str:
        """Return who asks, for the log: ``TOKEN`` or ``LOGIN``. Raises RefusedError for anybody else."""
        token = await self._token(request)
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and _is_same(given.strip(), token):
            return TOKEN
        if not scheme and self._is_signed(request.cookies.get(COOKIE, ""), token):
            return LOGIN
        raise RefusedError(401, "write the token of admin.token_file: Authorization: Bearer TOKEN")

    async def is_logged_in(self, request: web.BaseRequest) -> bool:
        """Whether the browser has logged in: only then the page shows forms."""
        if self._token_file is None or COOKIE not in request.cookies:
            return False
        try:
            return self._is_signed(request.cookies[COOKIE], await self._read())
        except RefusedError:
            return False

    async def log_in(self, request: web.BaseRequest, given: str) -> str:
        """Return the value of the cookie for whoever gives the token. Raises RefusedError."""
        token = await self._token(request)
        if not _is_same(given.strip(), token):
            raise RefusedError(401, "this is not the token of admin.token_file")
        log.info("logged in to the admin port", source=request.remote)
        until_s = str(int(self._clock()) + LOGIN_S)
        return f"{until_s}.{_signed(until_s, token)}"

    async def _token(self, request: web.BaseRequest) -> bytes:
        """Return the token that a request is to prove, if it comes by a way that is allowed."""
        if self._token_file is None:
            raise RefusedError(
                403, "nothing can be changed here: set admin.token_file to a file with a token, and restart"
            )
        if not _is_same_origin(request):
            raise RefusedError(403, "sent by a page of another origin: use the page of this port")
        return await self._read()

    async def _read(self) -> bytes:
        assert self._token_file is not None  # noqa: S101  for mypy
        try:
            # Read each time, so that replacing or removing a token takes effect at once, on logins too.
            token = (await asyncio.to_thread(read_file, self._token_file)).strip()
        except OSError as error:
            raise RefusedError(503, f"admin.token_file cannot be read: {error.strerror}") from None
        if not token:
            raise RefusedError(503, "admin.token_file is empty: write a token into it")
        return token

    def _is_signed(self, cookie: str, token: bytes) -> bool:
        until_s, _, signature = cookie.partition(".")
        return _is_same(signature, _signed(until_s, token).encode()) and int(until_s) > self._clock()


def _is_same_origin(request: web.BaseRequest) -> bool:
    """Whether a request comes from a page of this port, or not from a page of any.

    Browsers say so in Sec-Fetch-Site over TLS and on localhost, else in Origin, which has the page's host and port.
    Programs send neither, and browsers send the cookie only with one of them.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site == "same-origin"
    if origin is not None:
        return origin.partition("://")[2].casefold() == request.host.casefold()
    return COOKIE not in request.cookies


def _signed(until_s: str, token: bytes) -> str:
    return hmac.new(token, f"sluice login until {until_s}".encode(errors="replace"), sha256).hexdigest()


def _is_same(given: str, wanted: bytes) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted)
