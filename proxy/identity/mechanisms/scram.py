"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), as Kafka's ``ScramMessages`` and ``ScramSaslServer`` read it."""

import re
from typing import Final

from proxy.identity.mechanisms.mechanism import Claim

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


def claim_in(token: bytes) -> Claim | None:
    """Return the name in the client's first message, or the id of a delegation token; None if Kafka refuses it."""
    match = _CLIENT_FIRST.fullmatch(token)
    if match is None:
        return None
    name, authzid = match["name"], match["authzid"] or b""
    if not (is_escaped(name) and is_escaped(authzid)):
        return None
    # In Kafka's order of replacement (ScramFormatter.username).
    username = name.replace(b"=2C", b",").replace(b"=3D", b"=")
    if authzid not in (b"", username):  # Kafka too compares the one as sent with the other unescaped
        return None
    # As in `ScramExtensions`, the last one counts.
    extensions = dict(pair.split(b"=", 1) for pair in match["extensions"].split(b",") if pair)
    return Claim(username.decode("ascii"), is_token=extensions.get(b"tokenauth", b"").lower() == b"true")


def is_escaped(name: bytes) -> bool:
    """Whether a ``SASL_NAME`` contains = in =2C and =3D alone."""
    return _BAD_ESCAPE.search(name) is None


def is_success(token: bytes, number: int) -> bool:
    """Whether it is the server's final message with its signature, the second answer; ``e=`` is an error."""
    return number == 2 and token.startswith(b"v=")
