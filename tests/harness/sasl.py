"""SASL by hand, byte for byte: what no client library would send, and the usual, for comparison.

Built on wire.py as that is on struct: no codec stands between the test and the wire.
"""

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

from tests.harness.wire import Connection, frame

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
CREATE_DELEGATION_TOKEN: Final = 38
CLIENT_ID: Final = "by-hand"
SUCCESS: Final = 0
ILLEGAL_SASL_STATE: Final = 34
AUTHENTICATION_FAILED: Final = 58
_NONCE: Final = "rOprNGfwEbeRWgbNEkqO"


@dataclass(frozen=True, slots=True)
class Answer:
    """What SaslAuthenticate v1 is answered with."""

    error_code: int
    message: str | None
    token: bytes
    session_lifetime_ms: int

    @classmethod
    def of(cls, response: bytes) -> "Answer":
        (error_code,) = struct.unpack_from(">h", response, 8)
        message, at = _nullable(response, 10, ">h")
        token, at = _nullable(response, at, ">i")
        (lifetime_ms,) = struct.unpack_from(">q", response, at)
        return cls(error_code, None if message is None else message.decode(), token or b"", lifetime_ms)


def handshake_request(mechanism: str, version: int = 1) -> bytes:
    name = mechanism.encode()
    return frame(SASL_HANDSHAKE, version, 1, CLIENT_ID, struct.pack(">h", len(name)) + name)


def authenticate_request(token: bytes) -> bytes:
    return frame(SASL_AUTHENTICATE, 1, 2, CLIENT_ID, struct.pack(">i", len(token)) + token)


def handshake(connection: Connection, mechanism: str, version: int = 1) -> int:
    """The error code."""
    code: int = struct.unpack_from(">h", connection.exchange(handshake_request(mechanism, version)), 8)[0]
    return code


def authenticate(connection: Connection, token: bytes) -> Answer:
    return Answer.of(connection.exchange(authenticate_request(token)))


def raw_token(token: bytes) -> bytes:
    """The frame of a token after SaslHandshake v0."""
    return struct.pack(">i", len(token)) + token


def plain_token(user: str, password: str, authzid: str = "") -> bytes:
    return "\0".join((authzid, user, password)).encode()


def bearer_message(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def log_in_plain(connection: Connection, user: str, password: str) -> Answer:
    handshake(connection, "PLAIN")
    return authenticate(connection, plain_token(user, password))


def log_in_bearer(connection: Connection, token: str) -> Answer:
    """The first answer: a refusal has error code 0 and says why in its token (RFC 7628 §3.2.3)."""
    handshake(connection, "OAUTHBEARER")
    return authenticate(connection, bearer_message(token))


@dataclass(slots=True)
class Scram:
    """One exchange of SCRAM-SHA-512 (RFC 5802). `name` goes out as it is: escaping it is the caller's."""

    name: str
    password: str
    extensions: str = ""
    """As `tokenauth=true`."""
    _first: str = field(init=False)

    def __post_init__(self) -> None:
        self._first = f"n={self.name},r={_NONCE}" + (f",{self.extensions}" if self.extensions else "")

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def final(self, server_first: bytes) -> bytes:
        given = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt, rounds = base64.b64decode(given["s"]), int(given["i"])
        without_proof = f"c=biws,r={given['r']}"
        message = f"{self._first},{server_first.decode()},{without_proof}".encode()
        client_key = hmac.digest(
            hashlib.pbkdf2_hmac("sha512", self.password.encode(), salt, rounds), b"Client Key", "sha512"
        )
        signature = hmac.digest(hashlib.sha512(client_key).digest(), message, "sha512")
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def log_in(self, connection: Connection) -> Answer:
        """The last answer."""
        handshake(connection, "SCRAM-SHA-512")
        answer = authenticate(connection, self.first())
        return answer if answer.error_code else authenticate(connection, self.final(answer.token))


def log_in_scram(connection: Connection, user: str, password: str) -> Answer:
    return Scram(user, password).log_in(connection)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """What SCRAM takes as name and password (KIP-48)."""

    token_id: str
    secret: str
    owner: str
    """Whom the broker took its maker for."""


def create_delegation_token(connection: Connection) -> DelegationToken:
    """For whoever is logged in on the connection, who may not be logged in by a token himself."""
    no_renewers_and_a_day = struct.pack(">iq", 0, 86_400_000)
    response = connection.exchange(frame(CREATE_DELEGATION_TOKEN, 1, 3, CLIENT_ID, no_renewers_and_a_day))
    (error_code,) = struct.unpack_from(">h", response, 8)
    if error_code:
        raise ValueError(f"CreateDelegationToken was answered with error {error_code}")
    _, at = _nullable(response, 10, ">h")
    owner, at = _nullable(response, at, ">h")
    token_id, at = _nullable(response, at + 24, ">h")  # behind three times
    secret, _ = _nullable(response, at, ">i")
    key = base64.b64encode(secret or b"").decode()
    return DelegationToken((token_id or b"").decode(), key, (owner or b"").decode())


def _nullable(data: bytes, at: int, length: str) -> tuple[bytes | None, int]:
    """A string or bytes, and where it ends."""
    (size,) = struct.unpack_from(length, data, at)
    at += struct.calcsize(length)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
