"""Asks a running proxy for its health: ``sluice health``, and thus a container's HEALTHCHECK."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from config.admin import Admin
from config.problems import InvalidValue, without_secrets
from config.secrets import read_secret
from config.units import EVERY_INTERFACE, Address
from proxy.runtime.http_get import Answer, http_get

_TIMEOUT_S: Final = 3.0
_MOST_BYTES: Final = 64 * 1024
_MOST_PAGE_BYTES: Final = 256 * 1024 * 1024
"""``/metrics`` of very many clients."""


def admin_url(bind: Address) -> str:
    """Return the URL of the admin port, as seen from the same machine."""
    loopback = "::1" if bind.host == "::" else "127.0.0.1"
    return f"http://{Address(loopback if bind.host in EVERY_INTERFACE else bind.host, bind.port)}"


class AdminLogin(NamedTuple):
    """What is proved at the admin port."""

    token: str = ""
    """Of one who may read; "" where anybody may."""


def login_by(token_file: Path) -> AdminLogin:
    """Return the login with the token in a file. Raises InvalidValue."""
    return AdminLogin(read_secret(token_file).decode(errors="replace"))


def login_of(admin: Admin) -> AdminLogin:
    """Return a login by which the admin port of a configuration may be read: by a token file that can be read."""
    for entry in admin.entries if admin.is_closed else ():
        with suppress(InvalidValue):
            return login_by(entry.token_file)
    return AdminLogin()


def get(
    url: str,
    path: str = "",
    default: str = "",
    within_s: float = 10.0,
    most_bytes: int = _MOST_PAGE_BYTES,
    login: AdminLogin = AdminLogin(),  # noqa: B008  immutable
) -> Answer:
    """Return the answer of the admin port at ``url``; ``default`` is the path for a URL without one, ``path`` goes
    behind it.

    Raises ValueError for an invalid URL, and OSError.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host = None
    if not host or parts.scheme != "http":
        raise ValueError(f"{without_secrets(url)!r} is not a URL like http://127.0.0.1:9404")
    asked = f"{parts.path.rstrip('/') or default}{path}"
    own_name = str(Address(host, port))
    authorization = f"Bearer {login.token}" if login.token else ""
    asking = http_get(
        (host, port),
        asked,
        within_s=within_s,
        most_bytes=most_bytes,
        host=own_name,
        authorization=authorization,
    )
    return asyncio.run(asking)


def ask(url: str, path: str, login: AdminLogin = AdminLogin()) -> tuple[bool, str]:  # noqa: B008  immutable
    """Return whether the proxy is healthy, and its answer; ``path`` is the default for a ``url`` without one.

    Raises ValueError for an invalid URL.
    """
    try:
        answer = get(url, default=path, within_s=_TIMEOUT_S, most_bytes=_MOST_BYTES, login=login)
    except OSError as error:
        return False, f"{url} does not answer: {str(error) or type(error).__name__}"
    return answer.status == 200, answer.body.decode("utf-8", "replace").strip()
