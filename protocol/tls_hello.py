"""The host name in a TLS ClientHello (RFC 8446 §4.1.2, RFC 6066 §3), found before TLS begins.

It only says to which process a connection is passed: OpenSSL reads the same bytes again, and decides.
"""

from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 16 * 1024
"""The longest beginning of a connection that is searched; usual ClientHellos have 0.3 to 4 KiB."""

_HANDSHAKE_RECORD: Final = b"\x16\x03"
_RECORD_HEAD_BYTES: Final = 5
_HELLO_HEAD_BYTES: Final = 4
_MOST_RECORD_BYTES: Final = 2**14
_CLIENT_HELLO: Final = 1
_VERSION_AND_RANDOM_BYTES: Final = 34
_SERVER_NAME: Final = b"\0\0"
_HOST_NAME: Final = b"\0"


class NotAHelloError(Exception):
    """The bytes are not the beginning of a ClientHello, or it is too long."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A complete ClientHello."""

    server_name: str | None
    """The host that the client wants to reach (SNI); None if it names none."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The beginning of a ClientHello."""

    needed_bytes: int
    """It cannot be complete with fewer bytes, the present ones included."""


class HelloSearch:
    """Looks for the host name in the first bytes of a connection as they grow; TLS records may divide the ClientHello
    anywhere. Each byte is looked at once.
    """

    __slots__ = ("_at", "_hello", "_left")

    def __init__(self) -> None:
        self._hello = bytearray()
        """The ClientHello so far, without the records' heads."""
        self._at = 0
        """Bytes of the connection that have been looked at."""
        self._left = 0
        """Bytes of the record under way that are still to come; 0: the head of one comes next."""

    def look(self, data: bytes) -> Hello | Incomplete:
        """Look at ``data``, all bytes so far, those of former looks included.

        Raises NotAHelloError for anything else, and for one that does not end within ``MOST_BYTES``.
        """
        have, hello = len(data), self._hello
        while True:
            if not self._left:
                self._left = self._begin_record(data)
                if not self._left:
                    return _incomplete(self._at + _RECORD_HEAD_BYTES + self._missing)
            part = data[self._at : self._at + self._left]
            hello.extend(part)
            self._at += len(part)
            self._left -= len(part)
            if hello and hello[0] != _CLIENT_HELLO:
                raise NotAHelloError
            missing = self._missing
            if missing <= 0:
                return Hello(_server_name(bytes(hello[_HELLO_HEAD_BYTES : len(hello) + missing])))
            if self._left:
                return _incomplete(have + missing + (0 if missing <= self._left else _RECORD_HEAD_BYTES))

    def _begin_record(self, data: bytes) -> int:
        """Return the size of the next record, 0 if its head is not all there."""
        head = data[self._at : self._at + _RECORD_HEAD_BYTES]
        if head[:2] != _HANDSHAKE_RECORD[: len(head)]:
            raise NotAHelloError
        if len(head) < _RECORD_HEAD_BYTES:
            return 0
        size = int.from_bytes(head[3:], "big")
        if not 0 < size <= _MOST_RECORD_BYTES:
            raise NotAHelloError
        self._at += _RECORD_HEAD_BYTES
        return size

    @property
    def _missing(self) -> int:
        """Bytes of the ClientHello, or else of its head, that are still to come; below 0: it has ended before."""
        whole = _HELLO_HEAD_BYTES
        if len(self._hello) >= whole:
            whole += int.from_bytes(self._hello[1:whole], "big")
        return whole - len(self._hello)


def _incomplete(needed_bytes: int) -> Incomplete:
    if needed_bytes > MOST_BYTES:
        raise NotAHelloError
    return Incomplete(needed_bytes)


def _server_name(hello: bytes) -> str | None:
    at = _VERSION_AND_RANDOM_BYTES
    for length_bytes in (1, 2, 1):  # session id, cipher suites, compression methods
        at = _end(hello, at, length_bytes)
    if at == len(hello):
        return None  # no extensions
    end = _end(hello, at, 2)
    at += 2
    while at < end:
        kind, body = hello[at : at + 2], at + 4
        at = _end(hello, at + 2, 2)
        if kind == _SERVER_NAME:
            return _host_name(hello[body:at])
    return None


def _host_name(names: bytes) -> str:
    """Return the name in a server_name extension: a list of one, of the only type that there is."""
    if names[2:3] != _HOST_NAME:
        raise NotAHelloError
    try:
        return names[5 : _end(names, 3, 2)].decode("ascii")
    except UnicodeDecodeError:
        raise NotAHelloError from None


def _end(data: bytes, at: int, length_bytes: int) -> int:
    """Return the end of a vector, which begins with its length."""
    body = at + length_bytes
    end = body + int.from_bytes(data[at:body], "big")
    if end > len(data):
        raise NotAHelloError
    return end
