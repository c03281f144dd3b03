"""The pages: what each asks the state API for, and shows."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from aiohttp import web

from proxy.admin.route import GET, POST, Route
from proxy.page import html
from proxy.page.actions import Actions, Controls
from proxy.page.changes import shown
from proxy.page.open_pages import RecentAnswers, Streams
from proxy.runtime.clock import wall_s
from quotas.kinds import CLIENT_KINDS

_MOST_THROTTLED: Final = 50
_MOST_LATELY: Final = 10
_TOP: Final = 20
_FOUND: Final = 100
_MOST_HISTORIES: Final = 200
_MOST_CONNECTIONS: Final = 100
_MOST_BROKERS: Final = 200
_MOST_CHANGES: Final = 50
_MOST_OF_A_NAME: Final = 1024
_SORTS: Final = ("connections", "bytes_in_per_s", "bytes_out_per_s", "ratio", "throttled_share_1m")

_KINDS: Final = tuple(kind.value for kind in CLIENT_KINDS)

_Data = dict[str, Any]
State = Callable[[str, Mapping[str, str]], Coroutine[Any, Any, _Data]]
"""Answers a resource of the state API and its parameters, as the API does."""

_NO_INSTANCE: Final = {"instance": None, "version": None}
_KEEP_S: Final = 1.0
_KEEP_HISTORY_S: Final = 10.0


def parameters_of(request: web.BaseRequest) -> dict[str, Any]:
    """Return the parameters of a page that can be used, without empty ones."""
    given: Mapping[str, str] = request.query
    sort, offset = given.get("sort", ""), given.get("offset", "")
    found = {
        "q": given.get("q", "").strip()[:_MOST_OF_A_NAME],
        "user": given.get("user", "")[:_MOST_OF_A_NAME],
        "client_id": given.get("client_id", "")[:_MOST_OF_A_NAME],
        "sort": sort if sort.removeprefix("-") in _SORTS else "",
        "offset": int(offset) if offset.isascii() and offset.isdecimal() and len(offset) < 7 else 0,
        "all": "1" if given.get("all") == "1" else "",
    }
    return {name: value for name, value in found.items() if value}


class Pages:
    """The answers of the admin port for people. ``state`` answers as the state API."""

    def __init__(self, state: State, controls: Controls, streams: Streams | None = None) -> None:
        self._state = state
        self._recent = RecentAnswers()
        self._controls = controls
        self._actions = Actions(controls, self._message)
        self._streams = streams or Streams()
        self._data: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[_Data]]] = {
            "overview": self._overview,
            "client": self._client,
            "quotas": self._quotas,
        }

    def routes(self) -> dict[str, Route]:
        """Return who answers each path."""
        return {
            "/": self._route("overview"),
            "/client": self._route("client"),
            "/quotas": self._route("quotas"),
            "/login": Route(self._login, GET + POST, is_open=True),
            "/events": Route(self._events, ("GET",), is_bounded=False),  # has a bound of its own
            "/page.css": Route(partial(_static, "page.css", "text/css"), is_open=True),
            "/page.js": Route(partial(_static, "page.js", "text/javascript"), is_open=True),
            **self._actions.routes(),
        }

    def _route(self, name: str) -> Route:
        return Route(partial(self._page, name))

    async def _page(self, name: str, request: web.BaseRequest) -> web.StreamResponse:
        asked = parameters_of(request)
        events = html.query(page=name, **asked)
        data = await self._shown(request, asked, await self._data[name](asked))
        return await asyncio.to_thread(html.page, name, data | {"events": f"/events{events}"})

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        name, asked = request.query.get("page", ""), parameters_of(request)
        if name not in self._data:
            return _text(404, f"page is one of {', '.join(self._data)}")

        async def make() -> str:
            data = await self._shown(request, asked, await self._data[name](asked))
            return await asyncio.to_thread(html.fragment, name, data)

        key = name, *asked.items(), await self._controls.access.may_change(request)
        return await self._streams.answer(request, lambda: self._recent.get(key, _KEEP_S, make))

    async def _login(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            return await self._actions.log_in(request)
        return await self._message(request, 200, "")

    async def _message(self, request: web.BaseRequest, status: int, said: str) -> web.Response:
        """Return a page with a message, and the form to log in."""
        data = await self._shown(request, parameters_of(request), {"title": "Log in", "said": said, "events": ""})
        return html.page("message", data, status=status)

    async def _shown(self, request: web.BaseRequest, asked: Mapping[str, Any], data: _Data) -> _Data:
        """Return everything that a page shows."""
        access = self._controls.access
        may_see = request.path != "/login" or not access.is_closed  # the other pages are shown to who may read
        now = datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="seconds")
        return {
            "now": now,
            "path": request.path,
            "instance": await self._ask("instance") if may_see else _NO_INSTANCE,
            "all": asked.get("all"),
            "q": asked.get("q", ""),
            "asked": asked,
            "temporary": shown(self._controls.changes.temporary) if may_see else [],
            "can_log_in": access.is_possible,
            "may_change": await access.may_change(request),
            "kinds": _KINDS,
        } | data

    async def _ask(self, resource: str, **parameters: object) -> _Data:
        """Return an answer of the state; parameters that are None are left out."""
        said = {name: str(value) for name, value in parameters.items() if value is not None}
        keep_s = _KEEP_HISTORY_S if resource == "usage" else _KEEP_S
        made: _Data = await self._recent.get((resource, *said.items()), keep_s, lambda: self._state(resource, said))
        return made

    async def _overview(self, asked: Mapping[str, Any]) -> _Data:
        ask, all_, q, offset = self._ask, asked.get("all"), asked.get("q"), asked.get("offset")
        most = _FOUND if q or offset else _TOP
        throttled, lately, clients, brokers, workers, usage, connections = await asyncio.gather(
            ask("throttled", limit=_MOST_THROTTLED, q=q, all=all_),
            ask("clients", limit=_MOST_LATELY, sort="-throttled_share_1m", q=q, all=all_),
            ask("clients", limit=most, offset=offset, sort=asked.get("sort"), q=q, all=all_),
            ask("brokers", limit=_MOST_BROKERS, all=all_),
            ask("workers", all=all_),
            ask("usage", limit=_MOST_HISTORIES, all=all_),
            _nothing() if q is None else ask("connections", limit=_TOP, q=q, all=all_),
        )
        points = {_whose(each): each["points"] for each in usage["items"]}
        return {
            "title": "Who is throttled",
            "now": throttled["as_of"],
            "instances": throttled.get("instances", ()),
            "throttled": throttled,
            "lately": [each for each in lately["items"] if each["throttled_share_1m"]],
            "clients": clients,
            "connections": connections,
            "brokers": _by_owners(brokers) if all_ else brokers,
            "workers": workers,
            "points_of": lambda client: points.get(_whose(client)),
        }

    async def _client(self, asked: Mapping[str, Any]) -> _Data:
        user, client_id, all_ = asked.get("user", ""), asked.get("client_id", ""), asked.get("all")
        ask = partial(self._ask, user=user, client_id=client_id)
        throttled, connections, usage, explained = await asyncio.gather(
            ask("throttled", limit=_MOST_THROTTLED, all=all_),
            ask("connections", limit=_MOST_CONNECTIONS, all=all_),
            ask("usage", all=all_),
            self._ask("explain", user=user or None, client_id=client_id),
        )
        return {
            "title": " / ".join(filter(None, (user, client_id))) or "Client",
            "now": throttled["as_of"],
            "instances": throttled.get("instances", ()),
            "user": user,
            "client_id": client_id,
            "throttled": throttled,
            "connections": connections,
            "usage": usage,
            "explained": explained["items"],
        }

    async def _quotas(self, asked: Mapping[str, Any]) -> _Data:
        quotas, changes = await asyncio.gather(
            self._ask("quotas", limit=_FOUND, offset=asked.get("offset"), all=asked.get("all")),
            self._ask("changes", limit=_MOST_CHANGES, all=asked.get("all")),
        )
        return {
            "title": "Quotas",
            "now": quotas["as_of"],
            "instances": quotas.get("instances", ()),
            "quotas": quotas,
            "changes": changes,
        }


def _by_owners(brokers: _Data) -> _Data:
    """Return one row for each broker, of the answers of all instances: that of its owner."""
    rows: dict[int, _Data] = {}
    for each in brokers["items"]:
        if each["node_id"] not in rows or each["instance"] == each["owner"]:
            rows[each["node_id"]] = each
    return {"total": len(rows), "items": list(rows.values())}


async def _nothing() -> _Data:
    return {}


def _text(status: int, said: str) -> web.Response:
    return web.Response(status=status, text=f"{said}\n", headers=html.HEADERS)


async def _static(name: str, content_type: str, _: web.BaseRequest) -> web.StreamResponse:
    return html.static(name, content_type)


def _whose(item: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(item.get(name) for name in ("instance", "worker", "listener", "user", "client_id"))
