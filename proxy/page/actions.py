"""Changes by POST: a temporary limit, closing connections, the mode; and the login of a browser."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_args
from urllib.parse import parse_qsl

import structlog
from aiohttp import web

from config.settings import Mode
from proxy.admin.access import COOKIE, Access, Act
from proxy.admin.logins import LOGIN_S
from proxy.admin.route import GET, POST, RefusedError, Route, read_body
from proxy.admin.tls import is_over_tls
from proxy.control.mode import ModeSwitch
from proxy.page.changes import Changes, shown
from proxy.page.html import HEADERS

log = structlog.get_logger("sluice.admin")

_MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_MOST_BYTES: Final = 8192
_MOST_FIELDS: Final = 16

Message = Callable[[web.BaseRequest, int, str], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Controls:
    """The changes that the admin port allows, and to whom."""

    access: Access
    mode: ModeSwitch
    changes: Changes


class Actions:
    """Answers programs with JSON; browsers go back to the page they came from, or are shown a ``message``."""

    def __init__(self, controls: Controls, message: Message) -> None:
        self._controls = controls
        self._access = controls.access
        self._message = message

    def routes(self) -> dict[str, Route]:
        close = partial(self._answer, "connections", dict, partial(self._change, "close"))
        return {
            "/limits": Route(partial(self._answer, "limit", self._limits, partial(self._change, "limit")), GET + POST),
            "/connections/close": Route(close, POST),
            "/mode": Route(partial(self._answer, "mode", self._mode, self._turn), GET + POST),
            "/login": Route(self._log_in, GET + POST, is_open=True),
            "/logout": Route(self._log_out, POST, is_open=True),
        }

    async def _log_in(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "POST":
            return await self._message(request, 200, "")
        try:
            cookie = await self._access.log_in(request, (await _form(request)).get("token", ""))
        except RefusedError as refused:
            log.warning("login refused", source=request.remote, status=refused.status, why=str(refused))
            message = await self._message(request, refused.status, str(refused))
            message.headers.update(refused.headers)
            return message
        answer = _see("/")
        in_front = request.headers.get("X-Forwarded-Proto", "").casefold() == "https"
        is_tls = in_front or is_over_tls(request.transport)
        answer.set_cookie(COOKIE, cookie, max_age=LOGIN_S, httponly=True, samesite="Strict", secure=is_tls)
        return answer

    async def _log_out(self, request: web.BaseRequest) -> web.StreamResponse:
        self._access.log_out(request)
        answer = _see("/")
        answer.del_cookie(COOKIE)
        return answer

    async def _answer(
        self, what: str, read: Callable[[], Mapping[str, Any]], act: Act, request: web.BaseRequest
    ) -> web.StreamResponse:
        """Answer with what is in force now, or make a change; a browser then gets the page that it came from."""
        if request.method != "POST":
            return _json(read())
        answer = await self._access.change(request, what, act)
        if "text/html" not in request.headers.get("Accept", ""):
            return answer
        if answer.status != 200:
            return await self._message(request, answer.status, answer.text or "")
        if missing := _missing(answer):
            return await self._message(request, 502, missing)
        came_from = request.headers.get("Referer", "").partition("://")[2].partition("/")[2]
        return _see("/" + came_from.lstrip("/\\"))

    # ------------------------------------------------------------------------------------------------ what is changed

    def _limits(self) -> dict[str, Any]:
        return {"limits": shown(self._controls.changes.temporary)}

    def _mode(self) -> dict[str, Any]:
        return {"mode": self._controls.mode.mode, "configured": self._controls.mode.configured}

    async def _turn(self, request: web.BaseRequest, who: str) -> web.Response:
        body = await read_body(request, _MOST_BYTES)
        word = body.strip().decode(errors="replace").removeprefix("mode=")  # as the page's form writes it
        for mode in _MODES:
            if word == mode:
                before = await self._controls.mode.turn(mode, who=who, source=str(request.remote))
                return _json(self._mode() | {"before": before})
        raise RefusedError(400, f"{word[:64]!a} is not a mode: write one word as the body: {', '.join(_MODES)}")

    async def _change(self, what: str, request: web.BaseRequest, who: str) -> web.Response:
        form = await _form(request)
        return _json(await self._controls.changes.make(what, form, who, str(request.remote)))


async def _form(request: web.BaseRequest) -> dict[str, str]:
    """Return the fields of a form. Raises RefusedError if it is too large."""
    body = await read_body(request, _MOST_BYTES)
    try:
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise RefusedError(400, f"a form has at most {_MOST_FIELDS} fields") from None


def _missing(answer: web.Response) -> str:
    """Return which instances did not make a change, and why; "" if all did."""
    said = json.loads(answer.text or "{}").get("instances", ())
    failed = "; ".join(f"{each['instance']}: {each['error']}" for each in said if each["error"] is not None)
    return f"Not at {failed}. It is done at all others." if failed else ""


def _json(said: Mapping[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(said) + "\n", content_type="application/json", headers=HEADERS)


def _see(path: str) -> web.Response:
    return web.Response(status=303, headers=HEADERS | {"Location": path})
