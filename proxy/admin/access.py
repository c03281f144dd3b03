"""Access to the admin port: holders of a token or a certificate may read or change something, and so may browsers that
have logged in with a token.

Changes that a browser sends from another origin are refused.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from config.admin import OF_TOKEN_FILE, Admin, May
from config.files import read_secret
from config.problems import InvalidValue
from proxy.admin.logins import Guesses, Logins
from proxy.admin.route import RefusedError
from proxy.admin.tls import AdminTls
from proxy.runtime.tasks import spawn
from quotas.networks import network_of

log = structlog.get_logger("sluice.admin")

COOKIE: Final = "sluice_login"
_WHO: Final = web.RequestKey("who", str)

Act = Callable[[web.BaseRequest, str], Awaitable[web.Response]]


class Access:
    """Checks requests. Token files are read for each: one that is replaced or removed counts at once, logins too."""

    def __init__(self, admin: Admin, tls: AdminTls | None = None) -> None:
        self._entries = {each.name: each for each in admin.entries}
        self._tls = tls
        self._files = {each.name: each.token_file for each in admin.entries if each.token_file is not None}
        self._by_subject = {each.subject: each.name for each in admin.entries if each.subject is not None}
        self.is_closed = admin.is_closed
        """Reading needs an entry, too."""
        self._logins = Logins()
        self._guesses = Guesses()
        self.tokens = dict.fromkeys(("accepted", "wrong", "slowed"), 0)
        """Tokens that were given, by outcome."""

    @property
    def is_possible(self) -> bool:
        """Somebody may change something."""
        return any("change" in each.may for each in self._entries.values())

    async def change(self, request: web.BaseRequest, what: str, act: Act) -> web.Response:
        """Return what ``act`` answers to who asks, for the log; refusals, also those that it raises, are logged."""
        # To its end, even if nobody waits for the answer any more: half a change would be worse.
        return await asyncio.shield(spawn(self._changed(request, what, act), "make a change"))

    async def _changed(self, request: web.BaseRequest, what: str, act: Act) -> web.Response:
        try:
            _check_way(request, self.is_possible)
            return await act(request, await self.who(request, "change"))
        except RefusedError as refused:
            log.warning("change refused", what=what, source=request.remote, status=refused.status, why=str(refused))
            return web.Response(status=refused.status, text=f"{refused}\n", headers=refused.headers)

    async def who(self, request: web.BaseRequest, to: May) -> str:
        """Return the name of who asks, if they may do that. Raises RefusedError."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        name: str | None = request.get(_WHO)  # it may have been asked before whether they may read
        if name is not None:
            pass
        elif scheme.casefold() == "bearer":
            name, _ = await self._holder(request, given)
        elif not scheme:
            name = await self._known(request)
        if name is None and await self._tokens():
            raise _unauthorized(f"write the token of {self._setting}: Authorization: Bearer TOKEN")
        if name is None:
            raise _unauthorized("show a certificate with a subject of admin.access")
        request[_WHO] = name
        if to not in self._entries[name].may and "change" not in self._entries[name].may:
            raise RefusedError(403, f"{name} may not {to}: see admin.access")
        return name

    async def may_change(self, request: web.BaseRequest) -> bool:
        """Whether a browser is that of somebody who may: only then the page shows forms."""
        name = await self._known(request)
        return name is not None and "change" in self._entries[name].may

    async def log_in(self, request: web.BaseRequest, given: str) -> str:
        """Return the value of the cookie for whoever gives a token. Raises RefusedError."""
        _check_way(request, bool(self._files))
        name, token = await self._holder(request, given)
        log.info("logged in to the admin port", who=name, source=request.remote)
        return self._logins.begin(name, token)

    def log_out(self, request: web.BaseRequest) -> None:
        self._logins.end(request.cookies.get(COOKIE, ""))

    async def _known(self, request: web.BaseRequest) -> str | None:
        subject = None if self._tls is None else self._tls.name_of(request.transport)
        if subject is not None and subject in self._by_subject:
            return self._by_subject[subject]
        login = self._logins.find(request.cookies.get(COOKIE, ""))
        if login is None:
            return None
        with suppress(RefusedError):
            if login.is_for(await _read(login.name, self._files[login.name])):
                return login.name
        self.log_out(request)
        return None

    async def _holder(self, request: web.BaseRequest, given: str) -> tuple[str, bytes]:
        """Return who has this token, and the token. Raises RefusedError."""
        network = network_of(request.remote or "")
        if wait_s := self._guesses.wait_s(network):
            self.tokens["slowed"] += 1
            raise RefusedError(429, f"too many wrong tokens: try again in {wait_s} s", **{"Retry-After": str(wait_s)})
        for name, token in await self._tokens():
            if hmac.compare_digest(given.strip().encode(errors="replace"), token):
                self.tokens["accepted"] += 1
                return name, token
        self.tokens["wrong"] += 1
        self._guesses.count(network)
        raise _unauthorized(f"this is not the token of {self._setting}")

    async def _tokens(self) -> list[tuple[str, bytes]]:
        """Return whose tokens they are, and those whose files can be read. Raises RefusedError if none of them can."""
        found, broken = list[tuple[str, bytes]](), list[RefusedError]()
        for name, file in self._files.items():
            try:
                found.append((name, await _read(name, file)))
            except RefusedError as error:
                broken.append(error)
        if broken and not found:
            raise broken[0]
        return found

    @property
    def _setting(self) -> str:
        return "admin.token_file" if self._entries.keys() == {OF_TOKEN_FILE} else "admin.access"


async def _read(name: str, token_file: Path) -> bytes:
    try:
        return await asyncio.to_thread(read_secret, token_file)
    except InvalidValue as error:
        said = "; ".join(filter(None, (error.message, error.hint)))
        of = "admin.token_file" if name == OF_TOKEN_FILE else f"admin.access, token_file of {name}"
        raise RefusedError(503, f"{of}: {said}") from None


def _unauthorized(why: str) -> RefusedError:
    return RefusedError(401, why, **{"WWW-Authenticate": "Bearer"})


def _check_way(request: web.BaseRequest, is_possible: bool) -> None:
    if not is_possible:
        raise RefusedError(403, "nothing can be changed here: set admin.token_file to a file with a token, and restart")
    if not _is_same_origin(request):
        raise RefusedError(403, "sent by a page of another origin: use the page of this port")


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
