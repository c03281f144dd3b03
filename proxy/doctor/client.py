"""Reads how to connect from a file for ``--command-config``, as Kafka's own tools would."""

import base64
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from config.client_properties import parse_jaas, parse_properties
from config.document import read_text
from config.listener import Listener
from config.problems import ConfigError
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.failures import Fixes
from proxy.brokers.login import SaslExchange, client_exchange, log_in

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OF_CLIENT: Final = Fixes(
    authority="name that authority in ssl.truststore.location (PEM) of --command-config",
    host="set ssl.endpoint.identification.algorithm to nothing",
    certificate="name a certificate with its key in ssl.keystore.location (PEM) of --command-config",
    plain="set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
)

# Keys that Kafka clients support and the doctor does not, with the alternative.
_UNSUPPORTED: Final = {
    "ssl.keystore.key": "write it with the certificate into a PEM file and name that in ssl.keystore.location",
    "ssl.keystore.certificate.chain": "write it with the key into a PEM file and name that in ssl.keystore.location",
    "ssl.truststore.password": "PEM files have none: leave it out",
    "ssl.keystore.password": "PEM files have none: leave it out (the key's own password is ssl.key.password)",
    "ssl.engine.factory.class": "leave it out",
    "security.providers": "leave it out",
}
_USED: Final = frozenset(
    (
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.login.callback.handler.class",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    )
)
_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
"""The mechanisms by which the doctor logs in, and the login module of each."""
_CLAIM: Final = "unsecuredLoginStringClaim_"
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

    @property
    def who(self) -> str:
        return "the token's user" if self.username is None else f"user {self.username}"

    def exchange(self) -> SaslExchange:
        return client_exchange(self.mechanism, self.username or "", self.secret)

    async def log_in(self, connection: BrokerConnection) -> None:
        """Log in over a connection. Raises LoginError, and as ``BrokerConnection.ask``."""
        await log_in(connection, self.mechanism, self.exchange(), self.who)


@dataclass(frozen=True, slots=True)
class ClientLogin:
    protocol: str
    context: ssl.SSLContext | None = None
    """Verifies as the client would; None without TLS."""
    unverified: ssl.SSLContext | None = None
    """Accepts any certificate, to examine a rejected one and the steps behind it."""
    credentials: Credentials | None = None
    bootstrap: str | None = None
    ignored: tuple[str, ...] = ()
    """Keys in the file that the doctor ignores."""
    given: bool = True
    """There is a file; without one, the clients' trusted authorities and login are unknown."""


def client_for(listener: Listener) -> ClientLogin:
    """Return the connection settings for ``listener`` without a file."""
    if listener.tls is None:
        return ClientLogin("PLAINTEXT", given=False)
    return ClientLogin("SSL", _context({}), _context({}, is_verified=False), given=False)


def load_client(path: Path, now_s: float) -> ClientLogin:
    """Read a file. Raises ClientConfigError."""
    try:
        text = read_text(path, pipes=True)
    except ConfigError as error:
        fix = "name a file as Kafka's tools take it for --command-config"
        raise ClientConfigError(f"{path} cannot be read ({error.problems[0].message}): {fix}") from None
    return client_of(parse_properties(text), now_s)


def client_of(properties: Mapping[str, str], now_s: float) -> ClientLogin:
    """Return the connection settings in the properties. Raises ClientConfigError."""
    for key, fix in _UNSUPPORTED.items():
        if key in properties:
            raise ClientConfigError(f"{key} is not supported by the doctor: {fix}")
    for key in _USED & properties.keys():
        if properties[key].startswith("${"):
            raise ClientConfigError(f"{key} uses a config provider: write the value itself")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ClientConfigError(f"security.protocol is none of {', '.join(PROTOCOLS)}")
    tls = protocol.endswith("SSL")
    return ClientLogin(
        protocol,
        _context(properties) if tls else None,
        _context(properties, is_verified=False) if tls else None,
        _credentials(properties, now_s) if protocol.startswith("SASL") else None,
        properties.get("bootstrap.servers", "").split(",")[0].strip() or None,
        tuple(sorted(properties.keys() - _USED)),
    )


def _context(properties: Mapping[str, str], *, is_verified: bool = True) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if is_verified:
        _trust(context, properties)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    own = _store(properties, "keystore")
    if own is not None:
        try:
            context.load_cert_chain(own, password=properties.get("ssl.key.password", ""))
        except OSError as error:
            said = _said(error, "holds no certificate with its key in PEM form, or ssl.key.password is not the key's")
            raise ClientConfigError(f"ssl.keystore.location {own}: {said}") from None
    return context


def _trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != ""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Java trusts any certificate of a truststore
    inline, trusted = properties.get("ssl.truststore.certificates"), _store(properties, "truststore")
    try:
        if inline is None and trusted is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=trusted, cadata=inline)
    except OSError as error:
        raise ClientConfigError(f"ssl.truststore: {_said(error, 'holds no certificate in PEM form')}") from None


def _store(properties: Mapping[str, str], store: str) -> str | None:
    location = properties.get(f"ssl.{store}.location")
    kind = properties.get(f"ssl.{store}.type", "JKS").upper()
    if location is not None and kind != "PEM":
        raise ClientConfigError(
            f"ssl.{store}.type is {kind}, and the doctor supports only PEM: convert it (keytool -importkeystore "
            f"-deststoretype pkcs12, openssl pkcs12 -nodes) and set ssl.{store}.type to PEM"
        )
    return location


def _said(error: OSError, not_pem: str) -> str:
    return not_pem if isinstance(error, ssl.SSLError) else (error.strerror or str(error)).lower()


def _credentials(properties: Mapping[str, str], now_s: float) -> Credentials:
    """Return the login in ``sasl.jaas.config`` for the mechanism. Raises ClientConfigError."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    wanted = _MODULES.get(mechanism)
    if wanted is None:
        known = ", ".join(_MODULES)
        raise ClientConfigError(f"sasl.mechanism {mechanism} is not supported by the doctor: it logs in by {known}")
    if "sasl.jaas.config" not in properties:
        raise ClientConfigError("sasl.jaas.config is missing: write the login module and its options there")
    try:
        login = parse_jaas(properties["sasl.jaas.config"])
    except ValueError as error:
        raise ClientConfigError(f"sasl.jaas.config {error}") from None
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
    claims = {name.removeprefix(_CLAIM): value for name, value in options.items() if name.startswith(_CLAIM)}
    if claims and not url.scheme:
        times = {"iat": int(now_s), "exp": int(now_s) + _UNSECURED_LIFETIME_S}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({"alg": "none"}, {**claims, **times})]
        token = ".".join(part.decode().rstrip("=") for part in (*parts, b""))
        return Credentials("OAUTHBEARER", claims.get("sub"), token)
    token = ""
    if url.scheme == "file":
        with suppress(OSError, ValueError):
            token = Path(unquote(url.path)).read_text(encoding="ascii").strip()
    if not token:
        fix = "write one into a file, and name that as file:///... in sasl.oauthbearer.token.endpoint.url"
        raise ClientConfigError(f"no token: {fix}")
    return Credentials("OAUTHBEARER", None, token)
