"""Asks a running proxy for its health: ``sluice health``, and thus a container's HEALTHCHECK."""

import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from config.admin import Admin
from config.files import read_secret
from config.listener import ClientTls
from config.problems import InvalidValue, without_secrets
from config.settings import BrokerTls
from config.units import EVERY_INTERFACE, Address
from proxy.brokers.tls import broker_context
from proxy.runtime.http_get import Answer, http_get

_TIMEOUT_S: Final = 3.0
_MOST_BYTES: Final = 256 * 1024 * 1024
"""``/metrics`` of very many clients."""


def admin_url(admin: Admin) -> str:
    """Return the URL of the admin port, as seen from the same machine."""
    bind = admin.bind
    loopback = "::1" if bind.host == "::" else "127.0.0.1"
    scheme = "http" if admin.tls is None else "https"
    return f"{scheme}://{Address(loopback if bind.host in EVERY_INTERFACE else bind.host, bind.port)}"


class AdminLogin(NamedTuple):
    """A login at the admin port."""

    token: str = ""
    """The token of an entry that may read; "" where anybody may."""
    context: ssl.SSLContext | None = None
    """Verifies the port, where that has TLS; None: by the authorities of the system."""

    @property
    def authorization(self) -> str:
        return f"Bearer {self.token}" if self.token else ""

    def given(self, token_file: Path | None, ca: Path | None) -> "AdminLogin":
        """Return it with the token, and verified by the authorities, that options name. Raises InvalidValue."""
        token, context = self
        try:
            if token_file is not None:
                token = _token(token_file)
        except InvalidValue as error:
            raise InvalidValue(f"--token-file: {error.message}") from None
        try:
            if ca is not None:
                context = ssl.create_default_context(cafile=ca)
        except OSError as error:  # also if there is no certificate in it
            raise InvalidValue(f"--ca {ca}: {error.strerror or error}") from None
        return AdminLogin(token, context)


def _token(token_file: Path) -> str:
    return read_secret(token_file).decode(errors="replace")


def own_context(tls: ClientTls) -> ssl.SSLContext:
    """Return a context that trusts the certificate of a configuration itself, which need not be for a loopback address,
    and shows it where clients have to show one. Raises OSError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tls.certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.client_authentication == "required":
        context.load_cert_chain(tls.certificate, tls.key)
    return context


def context_of_others(admin: Admin) -> ssl.SSLContext | None:
    """Return a context for the admin ports of other instances, None where these have no TLS. Raises OSError."""
    if admin.tls is None:
        return None
    return broker_context(BrokerTls(ca=admin.ca, certificate=admin.tls.certificate, key=admin.tls.key))


def login_of(admin: Admin) -> AdminLogin:
    """Return a login by which the admin port of a configuration may be read: by a token file that can be read."""
    context = None if admin.tls is None else own_context(admin.tls)
    for entry in admin.entries if admin.is_closed else ():
        if entry.token_file is not None:
            with suppress(InvalidValue):
                return AdminLogin(_token(entry.token_file), context)
    return AdminLogin(context=context)


def get(
    url: str,
    path: str = "",
    default: str = "",
    within_s: float = 10.0,
    login: AdminLogin = AdminLogin(),  # noqa: B008  immutable
) -> Answer:
    """Return the answer of the admin port at ``url``; ``default`` is the path for a URL without one, ``path`` goes
    behind it.

    Raises ValueError for an invalid URL, and OSError.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError(f"{without_secrets(url)!r} is not a URL like http://127.0.0.1:9404")
    asked = f"{parts.path.rstrip('/') or default}{path}"
    own_name = str(Address(host, port))
    asking = http_get(
        (host, port),
        asked,
        within_s=within_s,
        most_bytes=_MOST_BYTES,
        host=own_name,
        authorization=login.authorization,
        context=(login.context or ssl.create_default_context()) if parts.scheme == "https" else None,
    )
    return asyncio.run(asking)


async def state_of(admin: Address, resource: str, login: AdminLogin) -> dict[str, Any]:
    """Return what the state API of an admin port says, asked as localhost, which each accepts. Raises OSError."""
    answer = await http_get(
        (admin.host, admin.port),
        f"/api/v1/{resource}",
        within_s=_TIMEOUT_S,
        most_bytes=_MOST_BYTES,
        authorization=login.authorization,
        context=login.context,
    )
    try:
        said = json.loads(answer.body)
    except ValueError:
        said = None
    if answer.status != 200 or not isinstance(said, dict):
        raise ConnectionError("answers with something else than an admin port of this version")
    return said


def ask(url: str, path: str, login: AdminLogin = AdminLogin()) -> tuple[bool, str]:  # noqa: B008  immutable
    """Return whether the proxy is healthy, and its answer; ``path`` is the default for a ``url`` without one.

    Raises ValueError for an invalid URL.
    """
    try:
        answer = get(url, default=path, within_s=_TIMEOUT_S, login=login)
    except OSError as error:
        return False, f"{url} does not answer: {str(error) or type(error).__name__}"
    return answer.status == 200, answer.body.decode("utf-8", "replace").strip()
