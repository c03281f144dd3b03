"""Names as clients are counted by them, and as Kafka writes them into ZooKeeper paths and metric tags (Sanitizer)."""

import re
from hashlib import sha256
from sys import getsizeof
from typing import Final
from urllib.parse import quote, unquote_to_bytes

MAX_NAME_BYTES: Final = 256
"""In UTF-8; a client-id may have 32,767 bytes, and whoever sends such ones chooses how much memory they take."""

OTHER: Final = "sluice:other"
"""The client-id that those share for whose names there is no room."""

_BEGINNING_BYTES: Final = 63
_CUT: Final = re.compile(r".{0,63}~[0-9a-f]{64}", re.DOTALL)
_MAX_CUT_BYTES: Final = _BEGINNING_BYTES + 65
_NEVER_CUT_CHARS: Final = 64
"""So many characters are neither too long, at four bytes each, nor what is left of a name that is."""

_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def counted_as(name: str) -> str:
    """Return the name by which a user or client-id off the wire is known here, of at most MAX_NAME_BYTES.

    Of a longer one that is its beginning, ``~`` and its SHA-256. No choice of a name makes anybody somebody else: one
    that only looks as if it had been cut is cut as well. So this is to be called once for a name.
    """
    if len(name) <= _NEVER_CUT_CHARS:
        return name
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) <= MAX_NAME_BYTES and not _is_cut(name, encoded):
        return name
    return f"{encoded[:_BEGINNING_BYTES].decode('utf-8', 'ignore')}~{sha256(encoded).hexdigest()}"


def configured_as(name: str) -> str:
    """Return the name that a quota for ``name`` is for: as ``counted_as``, and one that was cut already, as metrics
    and usage records show it, stays itself.
    """
    if len(name) > _NEVER_CUT_CHARS and _is_cut(name, name.encode("utf-8", "surrogatepass")):
        return name
    return counted_as(name)


def _is_cut(name: str, encoded: bytes) -> bool:
    return len(encoded) <= _MAX_CUT_BYTES and _CUT.fullmatch(name) is not None


def shared_name(user: str) -> str | None:
    """Return whom ``user``, a pseudo principal with a credential (``sluice:<mechanism>:<credential>``), is one of."""
    return user.rpartition(":")[0] if user.startswith("sluice:") and user.count(":") > 1 else None


class Room:
    """How many bytes names may take together, as they lie in memory. The last one may go beyond."""

    __slots__ = ("_left",)

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes

    @property
    def full(self) -> bool:
        return self._left <= 0

    def take(self, *names: str) -> None:
        self._left -= sum(map(getsizeof, names))

    def give_back(self, *names: str) -> None:
        self._left += sum(map(getsizeof, names))


def sanitise(name: str) -> str:
    """Percent-encode all but ``A-Z a-z 0-9 . - _``, per UTF-8 byte; a lone surrogate becomes ``%3F``, as in Java."""
    return quote(name.encode("utf-8", "replace"), safe="-._").replace("~", "%7E")


def desanitise(text: str) -> str:
    """Undo ``sanitise``; ``+`` is a space, as for Java's URLDecoder. Raises ValueError for a malformed ``%``."""
    malformed = _MALFORMED.search(text)
    if malformed:
        raise ValueError(f"malformed % escape at position {malformed.start()} of {text!a}")
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")
