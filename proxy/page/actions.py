"""Changes by POST: a temporary limit, closing connections, the mode; and the login of a browser."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import structlog
from aiohttp import web

from config.problems import InvalidValue
from config.units import parse_bytes, parse_duration_ms, parse_number
from proxy.admin.access import COOKIE, Access, RefusedError
from proxy.admin.logins import LOGIN_S
from proxy.admin.mode import ModePage
from proxy.admin.route import Route
from proxy.control.temporary_limits import TemporaryLimits
from proxy.page.html import HEADERS
from proxy.runtime.names import label
from quotas.entities import Entity
from quotas.kinds import BYTES, QuotaKind
from quotas.stores.alteration import Change, Refusal, check

log = structlog.get_logger("sluice.admin")

POST: Final = ("POST",)
_MOST_BYTES: Final = 8192
_MOST_FIELDS: Final = 16
_NAMES: Final = {"user": "user", "client_id": "client-id"}
"""Fields of forms → parts of an entity."""

Message = Callable[[web.BaseRequest, int, str], Awaitable[web.Response]]
"""Returns a page with a message."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The changes that the admin port allows, and to whom."""

    access: Access
    mode: ModePage
    temporary: TemporaryLimits
    close: Callable[[str | None, str | None, str | None], Awaitable[int]]
    """Closes the connections of a user, client-id and peer (None: of any), and returns how many."""


class Actions:
    """Answers programs with JSON; browsers go back to the page they came from, or are shown a ``message``."""

    def __init__(self, controls: Controls, message: Message) -> None:
        self._controls = controls
        self._access = controls.access
        self._message = message

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        return {
            "/limits": Route(partial(self._for_browser, self._limits), ModePage.METHODS),
            "/connections/close": Route(partial(self._for_browser, self._close), POST),
            "/mode": Route(partial(self._for_browser, self._controls.mode.answer), ModePage.METHODS),
            "/logout": Route(self._log_out, POST),
        }

    async def log_in(self, request: web.BaseRequest) -> web.StreamResponse:
        """Set the cookie if the form has the token."""
        try:
            cookie = await self._access.log_in(request, (await _form(request)).get("token", ""))
        except RefusedError as refused:
            log.warning("login refused", source=request.remote, status=refused.status, why=str(refused))
            message = await self._message(request, refused.status, str(refused))
            message.headers.update(refused.headers)
            return message
        answer = _see("/")
        is_tls = request.headers.get("X-Forwarded-Proto", "").casefold() == "https"  # this port itself has no TLS
        answer.set_cookie(COOKIE, cookie, max_age=LOGIN_S, httponly=True, samesite="Strict", secure=is_tls)
        return answer

    async def _log_out(self, request: web.BaseRequest) -> web.StreamResponse:
        self._access.log_out(request)
        answer = _see("/")
        answer.del_cookie(COOKIE)
        return answer

    async def _for_browser(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.Response]], request: web.BaseRequest
    ) -> web.StreamResponse:
        """Answer with JSON or text; to a browser, after a change, with the page that it came from."""
        answer = await handler(request)
        if request.method != "POST" or "text/html" not in request.headers.get("Accept", ""):
            return answer
        if answer.status == 200:
            came_from = request.headers.get("Referer", "").partition("://")[2].partition("/")[2]
            return _see("/" + came_from.lstrip("/\\"))
        return await self._message(request, answer.status, answer.text or "")

    # ------------------------------------------------------------------------------------------------ what is changed

    async def _limits(self, request: web.BaseRequest) -> web.Response:
        if request.method != "POST":
            return _json({"limits": temporary(self._controls.temporary)})
        return await self._access.change(request, "limit", self._limit)

    async def _limit(self, request: web.BaseRequest, who: str) -> web.Response:
        form, source, limits = await _form(request), str(request.remote), self._controls.temporary
        entity, kind, limit, for_ms = _wanted(form)
        if for_ms == 0:
            if not await limits.end(entity, kind, who, source):
                raise RefusedError(404, f"{label(entity.describe())} has no temporary {kind}")
        else:
            try:
                await limits.set(entity, kind, limit, for_ms, who, source)
            except ValueError as error:
                raise RefusedError(400, str(error)) from None
        return _json({"limits": temporary(limits)})

    async def _close(self, request: web.BaseRequest) -> web.Response:
        return await self._access.change(request, "connections", self._closed)

    async def _closed(self, request: web.BaseRequest, who: str) -> web.Response:
        form = await _form(request)
        user, client_id, peer = form.get("user"), form.get("client_id"), form.get("peer")
        if not user and not peer:
            raise RefusedError(400, "user: name whose connections to close: user, user and client_id, or peer")
        closed = await self._controls.close(user, client_id, peer)
        named = {name: label(value) for name, value in form.items() if name in ("user", "client_id", "peer")}
        log.warning("connections closed", connections=closed, of=named, who=who, source=request.remote)
        return _json({"closed": closed})


def temporary(limits: TemporaryLimits) -> list[dict[str, Any]]:
    """Return the temporary limits, as data."""
    return [
        {
            "entity": {"user": entity.user, "client-id": entity.client_id},
            "rule": label(entity.describe()),
            "kind": kind.value,
            "limit": each.limit,
            "until": datetime.fromtimestamp(each.until_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "who": each.who,
        }
        for (entity, kind), each in limits.limits.items()
    ]


def _wanted(form: Mapping[str, str]) -> tuple[Entity, QuotaKind, float, int]:
    """Return the limit that a form is for: 0 ms end it. Raises RefusedError."""
    try:
        for_ms = parse_duration_ms(form.get("for", ""))
    except InvalidValue as error:
        raise RefusedError(400, f"for: {error}") from None
    try:
        kind = QuotaKind(form.get("kind", ""))
    except ValueError:
        raise RefusedError(400, f"kind: write one of {', '.join(QuotaKind)}") from None
    named = {part: form[field] for field, part in _NAMES.items() if form.get(field)}
    try:
        said = form.get("limit", "")
        limit = 1.0 if not for_ms else parse_bytes(said) if kind.row.unit is BYTES else parse_number(said)
    except InvalidValue as error:
        raise RefusedError(400, f"limit: {error}") from None
    checked = check(Change(named, ((kind.value, limit),)))
    if isinstance(checked, Refusal):
        raise RefusedError(400, str(checked))
    return checked[0], kind, limit, for_ms


async def _form(request: web.BaseRequest) -> dict[str, str]:
    """Return the fields of a form. Raises RefusedError if it is too large."""
    body = b""
    while more := await request.content.read(_MOST_BYTES + 1 - len(body)):
        body += more
        if len(body) > _MOST_BYTES:
            raise RefusedError(413, f"a form has at most {_MOST_BYTES} bytes")
    try:
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise RefusedError(400, f"a form has at most {_MOST_FIELDS} fields") from None


def _json(said: Mapping[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(said) + "\n", content_type="application/json", headers=HEADERS)


def _see(path: str) -> web.Response:
    return web.Response(status=303, headers=HEADERS | {"Location": path})
