"""SASL OAUTHBEARER (RFC 7628), as Kafka's ``OAuthBearerClientInitialResponse`` reads it, and the name in its token.

The token's signature is not verified here: its content is a claim, which the broker verifies.
"""

import json
import re
from base64 import b64decode
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from proxy.identity.mechanisms.aws_msk_iam import access_key_of_url
from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.scram import SASL_NAME, is_escaped

_CLIENT_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>%s))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01" % SASL_NAME
)
_AUTH: Final = re.compile(rb"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.A-Za-z0-9]+=*)")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ABSENT: Final = object()
_DIGEST_CHARS: Final = 16
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that ``String.trim`` removes."""


def token_in(message: bytes) -> tuple[str, str] | None:
    """Return token and authorization id ("" without one) of the client's first message; None if Kafka refuses it."""
    match = _CLIENT_FIRST.fullmatch(message)
    if match is None or not is_escaped(authzid := match["authzid"] or b""):
        return None
    pairs = dict(pair.split(b"=", 1) for pair in match["pairs"].split(b"\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get(b"auth", b""))
    if auth is None or auth["scheme"].lower() != b"bearer":
        return None
    return auth["token"].decode("ascii"), authzid.decode("ascii")


@dataclass(frozen=True, slots=True)
class Names:
    """Paths of the token claims that name the user, and the prefixes of the user's name."""

    user: tuple[str, ...] = ("sub",)
    user_prefix: str = ""
    fallback: tuple[str, ...] = ()
    """Used if the first is absent: Strimzi's ``oauth.fallback.username.claim``."""
    fallback_prefix: str = ""


def principal_name(token: str, names: Names) -> str | None:
    """Return the user that a JWT names; None if it is not a JWT, or names none.

    Names are trimmed as Kafka's ``BrokerJwtValidator`` does, except in unsecured tokens, which
    ``OAuthBearerUnsecuredJws`` keeps as they are. Names that are not strings, or contain lone surrogates, are ignored,
    whatever Kafka makes of them.
    """
    sections = token.split(".")
    if len(sections) != 3:
        return None
    claims = _json_object(sections[1])
    name, prefix = _at(claims, names.user), names.user_prefix
    if name is _ABSENT and names.fallback:
        name, prefix = _at(claims, names.fallback), names.fallback_prefix
    if not isinstance(name, str):
        return None
    trimmed = name.strip(_JAVA_BLANKS)
    if trimmed and trimmed != name and _json_object(sections[0]).get("alg") != "none":
        name = trimmed
    return prefix + name if trimmed and not _SURROGATE.search(name) else None


def _at(claims: object, way: tuple[str, ...]) -> object:
    """Return the value at a path in the claims, ``_ABSENT`` if there is none; null is a value."""
    for step in way:
        claims = claims.get(step, _ABSENT) if isinstance(claims, dict) else _ABSENT
    return claims


def credential_of(token: str) -> str:
    """Return an identifier for the holder of a token without a name: the access key that signed it, or a digest."""
    return access_key_of_url(token) or sha256(token.encode("ascii")).hexdigest()[:_DIGEST_CHARS]


def _json_object(section: str) -> dict[str, object]:
    """Return the JSON object in a section of a JWT; an empty one if it is malformed."""
    try:
        text = b64decode(section + "=" * (-len(section) % 4), altchars=b"-_", validate=True).decode()
        value = json.loads(text)
    except (ValueError, RecursionError):  # binascii.Error and UnicodeDecodeError are ValueErrors
        return {}
    return value if isinstance(value, dict) else {}


class OAuthBearer(Mechanism):
    """The ``Mechanism`` OAUTHBEARER; it keeps only the name in the token's claim, or a digest of the token.

    After a refusal the exchange stays open, and the broker's ``OAuthBearerSaslServer`` accepts another first message:
    the claim is always that of the token being answered. A non-empty answer is a refusal, in JSON and without an error
    code.
    """

    __slots__ = ("_sent",)

    def __init__(self, names: Names) -> None:
        super().__init__(lambda message: _claim_in(message, names), lambda token, _: not token)
        self._sent = 0

    def from_client(self, token: bytes) -> None:
        """Read a message. If another one is still unanswered there is no claim, as the next answer may be to either."""
        self._sent += 1
        self.claim = self._claim_in(token) if self._sent == self._answers + 1 else None


def _claim_in(message: bytes, names: Names) -> Claim | None:
    found = token_in(message)
    if found is None:
        return None
    token, authzid = found
    name = principal_name(token, names)
    if name is None:
        return Claim(credential_of(token), is_credential=True)
    return Claim(name) if authzid in ("", name) else None
