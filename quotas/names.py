"""Names as clients are counted by them, and as Kafka writes them into ZooKeeper paths and metric tags (Sanitizer)."""

import re
from collections.abc import Mapping
from hashlib import sha256
from sys import getsizeof
from typing import Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

MAX_NAME_BYTES: Final = 256
"""In UTF-8. A client-id may have 32,767 bytes: uncut, clients would decide how much memory their names take."""

OTHER: Final = "sluice:other"
"""The client-id of the counter that clients share once the memory for names is used up."""
FOLDED: Final = "other"
"""The one name for all further names, where their number is bounded: clients can make up names."""

_BEGINNING_BYTES: Final = 63
_CUT: Final = re.compile(r".{0,63}~[0-9a-f]{64}", re.DOTALL)
_MAX_CUT_BYTES: Final = _BEGINNING_BYTES + 65
_NEVER_CUT_CHARS: Final = 64
"""A name of at most this many characters needs no cut (at four bytes each), and is too short to be a cut name."""

_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

Key = TypeVar("Key")


def counted_as(name: str) -> str:
    """Return the name under which a user or client-id from the wire is counted: at most MAX_NAME_BYTES.

    A longer name becomes its beginning, ``~`` and its SHA-256. A name that only looks cut is cut as well, so that no
    client can impersonate another by its choice of name. Call this once per name, as it is not idempotent.
    """
    if len(name) <= _NEVER_CUT_CHARS:
        return name
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) <= MAX_NAME_BYTES and not _is_cut(name, encoded):
        return name
    return f"{encoded[:_BEGINNING_BYTES].decode('utf-8', 'ignore')}~{sha256(encoded).hexdigest()}"


def configured_as(name: str) -> str:
    """Return the name that a quota for ``name`` is stored under: as ``counted_as``, except that a name already cut, as
    metrics and usage records show it, stays unchanged.
    """
    if len(name) > _NEVER_CUT_CHARS and _is_cut(name, name.encode("utf-8", "surrogatepass")):
        return name
    return counted_as(name)


def _is_cut(name: str, encoded: bytes) -> bool:
    return len(encoded) <= _MAX_CUT_BYTES and _CUT.fullmatch(name) is not None


def fold(key: Key, kept: Mapping[Key, object], most: int, rest: Key) -> Key:
    """Return the key to keep something under: ``key`` while there are fewer than ``most``, else ``rest``."""
    return key if key in kept or len(kept) < most else rest


def shared_name(user: str) -> str | None:
    """Return the shared part of a pseudo principal (``sluice:<mechanism>:<credential>``), None for other users."""
    return user.rpartition(":")[0] if user.startswith("sluice:") and user.count(":") > 1 else None


class NameBudget:
    """A budget of memory for names, as Python objects. The last name may exceed it."""

    __slots__ = ("_left", "_was_refused")

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._was_refused = False

    @property
    def full(self) -> bool:
        return self._left <= 0

    def refuse(self) -> None:
        """Remember that a name had to do without, for ``take_relief``."""
        self._was_refused = True

    def take_relief(self) -> bool:
        """Return, once, whether names that were refused fit again."""
        relieved = self._was_refused and not self.full
        self._was_refused = self._was_refused and self.full
        return relieved

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
