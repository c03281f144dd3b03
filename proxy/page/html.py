"""Templates as HTML, and the headers of each answer."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from aiohttp import web

from quotas import texts

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send forms with "Origin: null"
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

UNKNOWN: Final = "–"  # noqa: RUF001  a dash


def query(**parameters: object) -> str:
    """Return a query string without what is empty. A client-id may be empty: it is left out too."""
    said = {key: str(value) for key, value in parameters.items() if value}
    return "?" + urlencode(said, errors="backslashreplace") if said else ""


def moment(time: str) -> str:
    """``2026-03-01 12:00:05``, in UTC. Times come as text from the answers, which are data."""
    return f"{_parsed(time):%Y-%m-%d %H:%M:%S}"


def away(time: str, now: str) -> str:
    """Return how far a time is from ``now``, in either direction: ``3 min 20 s``."""
    return texts.duration(abs((_parsed(time) - _parsed(now)).total_seconds()))


def _parsed(time: str) -> datetime:
    return datetime.fromisoformat(time).astimezone(UTC)


def _or_dash(write: Callable[..., str]) -> Callable[..., str]:
    return lambda value, *more: UNKNOWN if value is None else write(value, *more)


def _environment() -> jinja2.Environment:
    folder = files("proxy.page") / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        plain=texts.shown,
        short=texts.shortened,
        kind=_or_dash(texts.kind_word),
        rate=_or_dash(texts.rate),
        amount=_or_dash(texts.amount),
        percent=_or_dash(texts.share),
        duration=_or_dash(texts.duration_of_ms),
        moment=_or_dash(moment),
        away=_or_dash(away),
    )
    environment.globals["query"] = query
    return environment


TEMPLATES: Final = _environment()


def fragment(name: str, data: Mapping[str, Any]) -> str:
    """Return the part of a page that is live."""
    return TEMPLATES.get_template(f"{name}.html.j2").render(data)


def page(name: str, data: Mapping[str, Any], *, status: int = 200) -> web.Response:
    text = TEMPLATES.get_template("shell.html.j2").render({**data, "name": name})
    return web.Response(status=status, body=encoded(text), headers=HEADERS, content_type="text/html", charset="utf-8")


async def static(name: str, content_type: str, _: web.BaseRequest) -> web.Response:
    text = (files("proxy.page") / "templates" / name).read_text(encoding="utf-8")
    return web.Response(text=text, headers=HEADERS | {"Cache-Control": "no-cache"}, content_type=content_type)


def encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")
