"""Tokens of OAUTHBEARER, made by hand: unsecured ones (RFC 7515, appendix A.5), and RS256 with a key of the test's."""

import base64
import json
import time
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE: Final = "kafka"
ISSUER: Final = "https://issuer.example"
LIFETIME_S: Final = 3600


def unsecured_token(subject: str, lifetime_s: float = LIFETIME_S) -> str:
    """What a broker without a validator of its own takes on trust."""
    return f"{_part({'alg': 'none'})}.{_part(_claims(subject, lifetime_s))}."


class Issuer:
    """Who signs tokens; brokers that know its `jwks` file believe them."""

    def __init__(self, key_id: str = "test") -> None:
        self._key_id = key_id
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def write_jwks(self, file: Path) -> None:
        public = self._key.public_key().public_numbers()
        numbers = {"n": _number(public.n), "e": _number(public.e)}
        key = {"kty": "RSA", "kid": self._key_id, "use": "sig", "alg": "RS256", **numbers}
        file.write_text(json.dumps({"keys": [key]}), encoding="ascii")

    def token(self, subject: str, lifetime_s: float = LIFETIME_S) -> str:
        signed = f"{_part({'alg': 'RS256', 'kid': self._key_id})}.{_part(_claims(subject, lifetime_s))}"
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def forged(token: str, subject: str) -> str:
    """The same token with another subject under the old signature."""
    header, claims, signature = token.split(".")
    changed = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))) | {"sub": subject}
    return f"{header}.{_part(changed)}.{signature}"


def _claims(subject: str, lifetime_s: float) -> dict[str, object]:
    now_s = int(time.time())
    return {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + int(lifetime_s)}


def _part(content: dict[str, object]) -> str:
    return _base64(json.dumps(content, separators=(",", ":")).encode())


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
