"""The answers to the proxy's own requests, read as values. What is not needed is skipped, a token's HMAC above all."""

from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_BODY: Final = 8  # behind size and correlation id


class Handshake(NamedTuple):
    """An answer to SaslHandshake."""

    error_code: int
    mechanisms: list[str]
    """The ones that the broker takes."""


class Authentication(NamedTuple):
    """An answer to SaslAuthenticate."""

    error_code: int
    error_message: str
    token: bytes


class Token(NamedTuple):
    """A delegation token, without its secret."""

    token_id: str
    owner_type: str
    owner: str


class Tokens(NamedTuple):
    """An answer to DescribeDelegationToken."""

    error_code: int
    tokens: list[Token]


def read_handshake(frame: bytes) -> Handshake:
    """Read a SaslHandshake answer, v0 or v1. Raises ProtocolError."""
    fields = _Fields(frame)
    return Handshake(fields.number(_INT16), [fields.text() for _ in fields.items()])


def read_versions(frame: bytes) -> dict[int, tuple[int, int]]:
    """Read an ApiVersions answer, v0: by api key the lowest and highest version. Raises ProtocolError."""
    fields = _Fields(frame)
    if error_code := fields.number(_INT16):
        raise ProtocolError(Cause.BAD_BODY, f"ApiVersions is answered with error {error_code}")
    return {fields.number(_INT16): (fields.number(_INT16), fields.number(_INT16)) for _ in fields.items()}


def read_authentication(frame: bytes) -> Authentication:
    """Read a SaslAuthenticate answer, v0. Raises ProtocolError."""
    fields = _Fields(frame)
    return Authentication(fields.number(_INT16), fields.text(), fields.sized(fields.number(_INT32)))


def read_tokens(frame: bytes) -> Tokens:
    """Read a DescribeDelegationToken answer, v1. Raises ProtocolError."""
    fields = _Fields(frame)
    return Tokens(fields.number(_INT16), [_read_token(fields) for _ in fields.items()])


def _read_token(fields: "_Fields") -> Token:
    owner_type, owner = fields.text(), fields.text()
    fields.skip(3 * 8)  # when it was issued, when it expires, until when it may be renewed
    token_id = fields.text()
    fields.skip(fields.number(_INT32))  # the HMAC is the token's password
    for _ in fields.items():
        fields.text()  # type and name of one who may renew it
        fields.text()
    return Token(token_id, owner_type, owner)


class _Fields:
    """The fields of an answer's body, one after the other; each raises ProtocolError where the frame ends too early."""

    __slots__ = ("_at", "_frame")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = _BODY

    def skip(self, size: int) -> int:
        """Return where the ``size`` bytes begin that are passed."""
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
        """Return a string; null is empty."""
        return self.sized(max(0, self.number(_INT16))).decode("utf-8", "replace")

    def items(self) -> range:
        """Return a number for each item of an array; every item takes bytes, so a lie about how many ends soon."""
        return range(self.number(_INT32))
