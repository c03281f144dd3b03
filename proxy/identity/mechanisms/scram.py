"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), as Kafka's ``ScramMessages`` and ``ScramSaslServer`` read it."""

import re
from typing import Final, NamedTuple

from proxy.identity.mechanisms.mechanism import Claim, FirstToken

SASL_NAME: Final = rb"[\x01-\x2b\x2d-\x7f]+"
"""The characters of a name (saslname of RFC 5801): ASCII without a comma. Its escapes are not checked: an alternative
per character would cost memory for each.
"""
_BAD_ESCAPE: Final = re.compile(rb"=(?!2C|3D)")

# The grammar of ScramMessages.ClientFirstMessage: the gs2 flag is n, and everything is ASCII.
_PRINTABLE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>%(name)s))?,(?:m=%(value)s,)?n=(?P<name>%(name)s),r=%(printable)s"
    rb"(?P<extensions>(?:,[A-Za-z]+=%(value)s)*)" % {b"name": SASL_NAME, b"value": SASL_NAME, b"printable": _PRINTABLE}
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
    name, authzid = match["name"], match["authzid"] or b""
    check_name(name)
    check_name(authzid)
    # In Kafka's order of replacement (ScramFormatter.username).
    username = name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")
    return ClientFirst(username, authzid.decode("ascii"), _token_auth(match["extensions"]))


def check_name(name: bytes) -> None:
    """Raise ValueError if a ``SASL_NAME`` contains an = other than in =2C and =3D."""
    if _BAD_ESCAPE.search(name):
        raise ValueError("a SASL name with an = that begins neither =2C nor =3D")


def _token_auth(extensions: bytes) -> bool:
    """Return whether the last extension ``tokenauth`` is true, ignoring case, as in ``ScramExtensions``."""
    pairs = dict(pair.split(b"=", 1) for pair in extensions.split(b",") if pair)
    return pairs.get(b"tokenauth", b"").lower() == b"true"


class Scram(FirstToken):
    """The ``Mechanism`` SCRAM; it keeps the name in the first message, and nothing of those with a proof."""

    __slots__ = ()

    def _claim_in(self, token: bytes) -> Claim | None:
        try:
            first = parse_client_first(token)
        except ValueError:
            return None
        # Kafka too compares the one as sent with the other unescaped.
        return Claim(first.username, first.token_auth) if first.authzid in ("", first.username) else None

    def _is_success(self, token: bytes, number: int) -> bool:
        """The server's final message with its signature is the second answer; ``e=`` is an error."""
        return number == 2 and token.startswith(b"v=")
