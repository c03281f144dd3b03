"""Names in SASL messages (saslname of RFC 5801 and 5802), as Kafka reads them for SCRAM and OAUTHBEARER:
ASCII, with = and , escaped.
"""

import re
from typing import Final

PATTERN: Final = rb"[\x01-\x2b\x2d-\x7f]+"
"""The characters of a name, escapes not checked: an alternative per character would cost memory for each."""

_BAD_ESCAPE: Final = re.compile(rb"=(?!2C|3D)")


def check(name: bytes) -> None:
    """Raise ValueError if a name that matches ``PATTERN`` contains an = other than in =2C and =3D."""
    if _BAD_ESCAPE.search(name):
        raise ValueError("a SASL name with an = that begins neither =2C nor =3D")


def unescape(name: bytes) -> str:
    """Return a checked name unescaped, in Kafka's order of replacement (``ScramFormatter.username``)."""
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")
