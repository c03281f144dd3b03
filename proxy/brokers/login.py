"""SASL login to a broker as a client: SaslHandshake v1, then the mechanism's tokens in SaslAuthenticate.

There is no re-authentication (KIP-368): the proxy's own connections reconnect instead.
"""

import asyncio
from pathlib import Path
from typing import Final, Protocol

from config.cluster import BrokerSasl
from config.files import read_file
from protocol.answers import read_authentication, read_handshake
from protocol.requests import sasl_authenticate, sasl_handshake
from proxy.brokers.connection import BrokerConnection

_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_STATE: Final = 34
_REFUSED: Final = 58
_MAX_ROUNDS: Final = 8
_MAX_QUOTED: Final = 200


class LoginError(ConnectionError):
    """A failed login; the text says what to do, and never contains the password."""


class SaslExchange(Protocol):
    """The client side of a SASL mechanism, from kafka-python, for one login."""

    def auth_bytes(self) -> bytes: ...

    def receive(self, auth_bytes: bytes) -> None: ...

    def is_done(self) -> bool: ...


def client_exchange(mechanism: str, username: str, secret: str) -> SaslExchange:
    """Return an exchange of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or of OAUTHBEARER, where ``secret`` is a token."""
    # Imported here, only for a login: it takes a tenth of a second.
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
        def token(self) -> str:
            return secret

    if mechanism.startswith("SCRAM"):  # kafka-python leaves RFC 5802's escaping to its caller
        username = username.replace("=", "=3D").replace(",", "=2C")
    exchange: SaslExchange = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism,
        sasl_plain_username=username,
        sasl_plain_password=secret,
        sasl_oauth_token_provider=Token(),
    )
    return exchange


class BrokerLogin:
    """The proxy's own user. The password is read at each login, so a new one needs no restart."""

    def __init__(self, settings: BrokerSasl) -> None:
        client_exchange(settings.mechanism, settings.username, "")  # imported now rather than at the first login
        self._settings = settings

    async def perform(self, connection: BrokerConnection) -> None:
        """Authenticate ``connection``. Raises as ``log_in``."""
        settings = self._settings
        exchange = client_exchange(settings.mechanism, settings.username, read_password(settings.password_file))
        await log_in(connection, settings.mechanism, exchange, f"user {settings.username}")


async def log_in(connection: BrokerConnection, mechanism: str, exchange: SaslExchange, who: str) -> None:
    """Authenticate ``connection``; ``who`` names the login in errors. Raises LoginError, OSError, EOFError."""
    handshake = read_handshake(await connection.ask(sasl_handshake(mechanism)))
    if handshake.error_code == _UNSUPPORTED_MECHANISM:
        offered = ", ".join(_clean(name) for name in handshake.mechanisms) or "none"
        raise LoginError(f"does not take {mechanism}, only {offered}: choose the mechanism among them")
    if handshake.error_code == _ILLEGAL_STATE:
        raise LoginError("does not use SASL on this listener: connect to another one, or without a login")
    if handshake.error_code:
        raise LoginError(f"refused SaslHandshake with error {handshake.error_code}")
    for _ in range(_MAX_ROUNDS):
        answer = read_authentication(await connection.ask(sasl_authenticate(exchange.auth_bytes())))
        if answer.error_code == _REFUSED:
            said = _clean(answer.error_message) or "no reason given"
            raise LoginError(f"refused the login of {who} by {mechanism}: {said}")
        if answer.error_code:
            raise LoginError(f"ended the login of {who} by {mechanism} with error {answer.error_code}")
        try:
            # SCRAM computes as many thousand hashes as the broker asks for.
            await asyncio.to_thread(exchange.receive, answer.token)
        except (ValueError, LookupError):  # their texts may quote the exchange
            said = f"a response that {mechanism} does not accept: it has not proved that it knows this user's password"
            raise LoginError(f"sent {said}") from None
        if exchange.is_done():
            return
    raise LoginError(f"does not complete the {mechanism} exchange")


def read_password(path: Path) -> str:
    """Return the password in a file, without a trailing line end. Raises LoginError."""
    try:
        text = read_file(path).decode()
    except OSError as error:
        raise LoginError(f"password_file {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise LoginError(f"password_file {path}: is not UTF-8") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise LoginError(f"password_file {path}: is empty: write the password into it")
    return password


def _clean(text: str) -> str:
    return " ".join(text.split())[:_MAX_QUOTED]
