"""Parsers of the responses to the proxy's own requests. Fields that are not needed are skipped, above all a token's
HMAC.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_BODY: Final = 8  # after size and correlation id


class Handshake(NamedTuple):
    """The response to SaslHandshake."""

    error_code: int
    mechanisms: list[str]
    """The mechanisms that the broker supports."""


class Authentication(NamedTuple):
    """The response to SaslAuthenticate."""

    error_code: int
    error_message: str
    token: bytes


class Token(NamedTuple):
    """A delegation token, without its secret."""

    token_id: str
    owner_type: str
    owner: str


class Tokens(NamedTuple):
    """The response to DescribeDelegationToken."""

    error_code: int
    tokens: list[Token]


def read_handshake(frame: bytes) -> Handshake:
    """Read a SaslHandshake response, v0 or v1. Raises ProtocolError."""
    fields = Fields(frame)
    return Handshake(fields.number(_INT16), [fields.text() for _ in fields.items()])


def read_versions(frame: bytes) -> dict[int, tuple[int, int]]:
    """Read an ApiVersions response, v0: the lowest and highest version by api key. Raises ProtocolError."""
    fields = Fields(frame)
    if error_code := fields.number(_INT16):
        raise ProtocolError(Cause.BAD_BODY, f"ApiVersions is answered with error {error_code}")
    return {fields.number(_INT16): (fields.number(_INT16), fields.number(_INT16)) for _ in fields.items()}


def read_authentication(frame: bytes) -> Authentication:
    """Read a SaslAuthenticate response, v0. Raises ProtocolError."""
    fields = Fields(frame)
    return Authentication(fields.number(_INT16), fields.text(), fields.sized(fields.number(_INT32)))


def read_tokens(frame: bytes) -> Tokens:
    """Read a DescribeDelegationToken response, v1. Raises ProtocolError."""
    fields = Fields(frame)
    return Tokens(fields.number(_INT16), [_read_token(fields) for _ in fields.items()])


def _read_token(fields: "Fields") -> Token:
    owner_type, owner = fields.text(), fields.text()
    fields.skip(3 * 8)  # issue, expiry and max timestamps
    token_id = fields.text()
    fields.skip(fields.number(_INT32))  # the HMAC is the token's password
    for _ in fields.items():
        fields.text()  # a renewer's type and name
        fields.text()
    return Token(token_id, owner_type, owner)


class Fields:
    """A cursor over the fields of a response body; each method raises ProtocolError if the frame ends too early."""

    __slots__ = ("_at", "_frame")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = _BODY

    def skip(self, size: int) -> int:
        """Skip ``size`` bytes; return where they began."""
        start = self._at
        if size < 0 or start + size > len(self._frame):
            raise ProtocolError(
                Cause.BAD_BODY, f"answer of {len(self._frame)} bytes has a field of {size} bytes at offset {start}"
            )
        self._at = start + size
        return start

    def number(self, form: Struct) -> int:
        value: int = form.unpack_from(self._frame, self.skip(form.size))[0]
        return value

    def sized(self, size: int) -> bytes:
        return self._frame[self.skip(size) : self._at]

    def text(self) -> str:
        """Return a string; "" for null."""
        return self.sized(max(0, self.number(_INT16))).decode("utf-8", "replace")

    def items(self) -> range:
        """Return a range over an array's elements. Each element takes bytes, so a false count is noticed soon."""
        return range(self.number(_INT32))
