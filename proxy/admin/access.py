"""Changes over the admin port are allowed to holders of the token, and to browsers that have logged in with it.

Requests that a browser sends from another origin are refused.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from config.problems import InvalidValue
from config.secrets import read_secret
from proxy.admin.guesses import Guesses
from proxy.admin.logins import Logins
from proxy.admin.route import RefusedError
from proxy.edge.crowds import network_of
from proxy.runtime.tasks import spawn

log = structlog.get_logger("sluice.admin")

COOKIE: Final = "sluice_login"
TOKEN: Final = "admin token"  # noqa: S105  a name for the log
LOGIN: Final = "admin login"


class Access:
    """Checks requests for changes. ``token_file`` is read for each."""

    def __init__(self, token_file: Path | None, logins: Logins | None = None, guesses: Guesses | None = None) -> None:
        self._token_file = token_file
        self._logins = logins or Logins()
        self._guesses = guesses or Guesses()
        self.tokens = dict.fromkeys(("accepted", "wrong", "slowed"), 0)
        """Tokens that were given, by outcome."""

    @property
    def is_possible(self) -> bool:
        """There is a token, without which nothing can be changed."""
        return self._token_file is not None

    async def change(
        self, request: web.BaseRequest, what: str, act: Callable[[web.BaseRequest, str], Awaitable[web.Response]]
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
            return web.Response(status=refused.status, text=f"{refused}\n", headers=refused.headers)

    async def _who(self, request: web.BaseRequest) -> str:
        """Return who asks, for the log: ``TOKEN`` or ``LOGIN``. Raises RefusedError for anybody else."""
        token = await self._token(request)
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.casefold() == "bearer":
            self._check(request, given, token)
            return TOKEN
        who = None if scheme else self._logins.who(request.cookies.get(COOKIE, ""), lambda _: token)
        if who is None:
            raise _unauthorized("write the token of admin.token_file: Authorization: Bearer TOKEN")
        return who

    async def is_logged_in(self, request: web.BaseRequest) -> bool:
        """Whether the browser has logged in: only then the page shows forms."""
        if self._token_file is None or COOKIE not in request.cookies:
            return False
        try:
            token = await self._read()
        except RefusedError:
            return False
        return self._logins.who(request.cookies[COOKIE], lambda _: token) is not None

    async def log_in(self, request: web.BaseRequest, given: str) -> str:
        """Return the value of the cookie for whoever gives the token. Raises RefusedError."""
        token = await self._token(request)
        self._check(request, given, token)
        log.info("logged in to the admin port", source=request.remote)
        return self._logins.begin(LOGIN, token)

    def log_out(self, request: web.BaseRequest) -> None:
        """Forget the login of a browser."""
        self._logins.end(request.cookies.get(COOKIE, ""))

    def _check(self, request: web.BaseRequest, given: str, token: bytes) -> None:
        """Raise RefusedError unless the token is right."""
        network = network_of(request.remote or "")
        if wait_s := self._guesses.wait_s(network):
            self.tokens["slowed"] += 1
            raise RefusedError(429, f"too many wrong tokens: try again in {wait_s} s", **{"Retry-After": str(wait_s)})
        if not hmac.compare_digest(given.strip().encode(errors="replace"), token):
            self.tokens["wrong"] += 1
            self._guesses.count(network)
            raise _unauthorized("this is not the token of admin.token_file")
        self.tokens["accepted"] += 1

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
            return await asyncio.to_thread(read_secret, self._token_file)
        except InvalidValue as error:
            raise RefusedError(
                503, f"admin.token_file: {'; '.join(filter(None, (error.message, error.hint)))}"
            ) from None


def _unauthorized(why: str) -> RefusedError:
    return RefusedError(401, why, **{"WWW-Authenticate": "Bearer"})


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
