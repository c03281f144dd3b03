"""Reads a login from ``sasl.mechanism`` and ``sasl.jaas.config``."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from config.jaas import parse_jaas
from proxy.brokers.login import SaslExchange, client_exchange

_BY_PASSWORD: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_BEARER: Final = "OAuthBearerLoginModule"
_UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_"
_UNSECURED_LIFETIME_S: Final = 3600


class ClientConfigError(Exception):
    """An unusable client configuration; the text names the key and the fix, and quotes no value."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login. The secret is not in the repr."""

    mechanism: str
    username: str | None
    """Absent if it is inside a token, which is not parsed."""
    secret: str = field(repr=False)
    """A password; for OAUTHBEARER the token."""

    def exchange(self) -> SaslExchange:
        """Return a new exchange for one login."""
        return client_exchange(self.mechanism, self.username or "", self.secret)


def credentials_of(properties: Mapping[str, str], now_s: float) -> Credentials:
    """Return the login in ``sasl.jaas.config`` for the mechanism. Raises ClientConfigError."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism != "OAUTHBEARER" and mechanism not in _BY_PASSWORD:
        raise ClientConfigError(
            f"sasl.mechanism {mechanism} is not supported by the doctor: it logs in by "
            f"{', '.join(_BY_PASSWORD)} and OAUTHBEARER"
        )
    if "sasl.jaas.config" not in properties:
        raise ClientConfigError("sasl.jaas.config is missing: write the login module and its options there")
    try:
        login = parse_jaas(properties["sasl.jaas.config"])
    except ValueError as error:
        raise ClientConfigError(f"sasl.jaas.config {error}") from None
    wanted = _BY_PASSWORD.get(mechanism, _BEARER)
    if login.module != wanted:
        raise ClientConfigError(f"sasl.jaas.config is not of {wanted}, which {mechanism} needs")
    if mechanism == "OAUTHBEARER":
        return _bearer(properties, login.options, now_s)
    if login.options.get("tokenauth", "").lower() == "true":
        raise ClientConfigError("sasl.jaas.config has tokenauth: log in as a user, not by a delegation token")
    for option in ("username", "password"):
        if not login.options.get(option):
            raise ClientConfigError(f"sasl.jaas.config has no {option}")
    return Credentials(mechanism, login.options["username"], login.options["password"])


def _bearer(properties: Mapping[str, str], options: Mapping[str, str], now_s: float) -> Credentials:
    """Return a token from the file named by the endpoint's URL, or an unsigned one made from claims."""
    url = urlsplit(properties.get("sasl.oauthbearer.token.endpoint.url", ""))
    if url.scheme == "file":
        try:
            token = Path(unquote(url.path)).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            token = ""
        if not token:
            raise ClientConfigError("sasl.oauthbearer.token.endpoint.url names no file that holds a token")
        return Credentials("OAUTHBEARER", None, token)
    if url.scheme:
        raise ClientConfigError(
            "sasl.oauthbearer.token.endpoint.url is no file: URL: fetch a token, write it into a file and name that"
        )
    claims = {
        name.removeprefix(_UNSECURED_CLAIM): value
        for name, value in options.items()
        if name.startswith(_UNSECURED_CLAIM)
    }
    if not claims:
        raise ClientConfigError(
            "no token: name a file that holds one as file:///... in sasl.oauthbearer.token.endpoint.url"
        )
    times = {"iat": int(now_s), "exp": int(now_s) + _UNSECURED_LIFETIME_S}
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "none"}, {**claims, **times})]
    return Credentials("OAUTHBEARER", claims.get("sub"), ".".join((*parts, "")))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
