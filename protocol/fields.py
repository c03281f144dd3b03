"""A reader of a message's fields in order, for messages off the hot path.

It supports both encodings: lengths of two and four bytes, and the varints and tagged fields of flexible versions
(KIP-482).
"""

from struct import Struct
from typing import Any, Final

from protocol.errors import Cause, ProtocolError
from protocol.varint import decode_varint, skip_tags

NO_ID: Final = bytes(16)
"""The zero topic id, which means none."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class Fields:
    """A cursor over ``data``, from ``at`` to ``end``.

    Each method raises ProtocolError if the message ends too early, or has null where it must not.
    """

    __slots__ = ("_data", "_end", "_flexible", "_what", "at")

    def __init__(self, what: str, data: bytes, at: int, end: int, flexible: bool) -> None:
        self._what = what
        self._data = data
        self.at = at
        self._end = end
        self._flexible = flexible

    def skip(self, size: int) -> int:
        """Skip ``size`` bytes; return where they began."""
        start = self.at
        if size < 0 or start + size > self._end:
            raise self._bad(f"ends inside a field of {size} bytes at offset {start}")
        self.at = start + size
        return start

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self._data, self.skip(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self._data, self.skip(4))[0]
        return value

    def number(self, form: Struct) -> Any:
        """Return the one value of ``form``."""
        return form.unpack_from(self._data, self.skip(form.size))[0]

    def flag(self) -> bool:
        return self._data[self.skip(1)] != 0

    def uuid(self) -> bytes:
        start = self.skip(16)
        return self._data[start : start + 16]

    def string(self) -> bytes | None:
        """Return a string's bytes; None for null."""
        length = self._varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        if length > 0x7FFF:  # possible in flexible versions only; Java refuses it too
            raise self._bad(f"has a string of {length} bytes before offset {self.at}")
        start = self.skip(length)
        return self._data[start : start + length]

    def text(self) -> bytes:
        """Return a string that may not be null."""
        found = self.string()
        if found is None:
            raise self._bad(f"has null before offset {self.at}, where a string must be")
        return found

    def count(self) -> int:
        """Return the claimed number of an array's elements; -1 for null."""
        count = self._varint() - 1 if self._flexible else self.int32()
        return max(count, -1)

    def counted(self) -> int:
        """Return the number of elements of an array that may not be null."""
        count = self.count()
        if count < 0:
            raise self._bad(f"has null before offset {self.at}, where an array must be")
        return count

    def tags(self) -> None:
        """Skip the tagged fields at the end of a struct, if the version has them."""
        if not self._flexible:
            return
        try:
            self.at = skip_tags(self._data, self.at)
        except IndexError:
            raise self._bad("ends inside its tagged fields") from None
        if self.at > self._end:
            raise self._bad("ends inside its tagged fields")

    def _varint(self) -> int:
        try:
            value, self.at = decode_varint(self._data, self.at)
        except IndexError:
            raise self._bad(f"ends inside a length at offset {self.at}") from None
        if self.at > self._end:
            raise self._bad(f"ends inside a length before offset {self.at}")
        return value

    def _bad(self, found: str) -> ProtocolError:
        return ProtocolError(Cause.BAD_BODY, f"{self._what} of {self._end} bytes {found}")
