"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), as Kafka's ``ScramMessages`` and ``ScramSaslServer`` read it."""

import re
from typing import Final, NamedTuple

from proxy.identity.mechanisms import sasl_name
from proxy.identity.mechanisms.mechanism import Claim

# The grammar of ScramMessages.ClientFirstMessage: the gs2 flag is n, and everything is ASCII.
_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>%(name)s))?,(?:m=%(value)s,)?n=(?P<name>%(name)s),r=%(printable)s"
    rb"(?P<extensions>(?:,[A-Za-z]+=%(value)s)*)"
    % {b"name": sasl_name.PATTERN, b"value": _VALUE, b"printable": _PRINTABLE}
)


class ClientFirst(NamedTuple):
    """The client's first message."""

    username: str
    """Unescaped; with ``token_auth`` the id of a delegation token."""
    authzid: str
    """As sent; empty if absent."""
    token_auth: bool


def parse_client_first(token: bytes) -> ClientFirst:
    """Parse the client's first message. Raises ValueError if Kafka does, and quotes nothing from it."""
    match = _CLIENT_FIRST.fullmatch(token)
    if match is None:
        raise ValueError("not a SCRAM client first message")
    name = match["name"]
    authzid = match["authzid"] or b""
    sasl_name.check(name)
    sasl_name.check(authzid)
    return ClientFirst(sasl_name.unescape(name), authzid.decode("ascii"), _token_auth(match["extensions"]))


def _token_auth(extensions: bytes) -> bool:
    """Return whether the last extension ``tokenauth`` is true, ignoring case, as in ``ScramExtensions``."""
    pairs = dict(pair.split(b"=", 1) for pair in extensions.split(b",") if pair)
    return pairs.get(b"tokenauth", b"").lower() == b"true"


class Scram:
    """The ``Mechanism`` SCRAM; it keeps the name in the first message, and nothing of those with a proof."""

    __slots__ = ("_answers", "_has_begun", "claim")

    def __init__(self) -> None:
        self.claim: Claim | None = None
        self._has_begun = False
        self._answers = 0

    def from_client(self, token: bytes) -> None:
        """Read the first message only: the broker takes the name from nowhere else."""
        if self._has_begun:
            return
        self._has_begun = True
        try:
            first = parse_client_first(token)
        except ValueError:
            return
        if first.authzid in ("", first.username):  # Kafka too compares the one as sent with the other unescaped
            self.claim = Claim(first.username, first.token_auth)

    def from_broker(self, token: bytes) -> bool:
        """Return True for the server's final message with its signature, the second answer; ``e=`` is an error."""
        self._answers += 1
        return self._answers == 2 and token.startswith(b"v=")
