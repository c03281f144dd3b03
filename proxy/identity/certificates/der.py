"""Reads the parts of DER (X.690) that lead to a certificate's subject, and the subject itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SEQUENCE: Final = 0x30
SET: Final = 0x31
INTEGER: Final = 0x02
OBJECT_IDENTIFIER: Final = 0x06

_HIGH_TAG_NUMBER: Final = 0x1F
_LONG_FORM: Final = 0x80
_MAX_LENGTH_BYTES: Final = 4
_MAX_IDENTIFIER_BYTES: Final = 1024
"""The time to write a number in decimal grows with the square of its length."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value within ``data``: ``start`` is the offset of its tag, ``begin`` and ``end`` bound its content."""

    data: bytes
    tag: int
    start: int
    begin: int
    end: int

    @property
    def content(self) -> bytes:
        return self.data[self.begin : self.end]

    @property
    def encoded(self) -> bytes:
        return self.data[self.start : self.end]

    def members(self) -> Iterator["Value"]:
        """Yield the values in the content of a SEQUENCE or SET. Raises ValueError if the content is malformed."""
        position = self.begin
        while position < self.end:
            value = read(self.data, position, self.end)
            yield value
            position = value.end

    def expect(self, tag: int, what: str) -> "Value":
        """Return the value if its tag is ``tag``; otherwise raise ValueError, which names the value ``what``."""
        if self.tag != tag:
            raise ValueError(f"{what} at byte {self.start} has tag 0x{self.tag:02x} instead of 0x{tag:02x}")
        return self


def read(data: bytes, start: int, end: int) -> Value:
    """Read the value that begins at ``start``, up to ``end``. Raises ValueError if not DER, or a tag above 30."""
    begin = start + 2
    if begin > end or data[start] & _HIGH_TAG_NUMBER == _HIGH_TAG_NUMBER:
        raise _not_der(start)
    length = data[start + 1]
    if length & _LONG_FORM:
        begin += length - _LONG_FORM
        digits = data[start + 2 : begin]
        length = int.from_bytes(digits)
        is_shortest = length >= _LONG_FORM and digits[0] > 0
        if len(digits) > _MAX_LENGTH_BYTES or not is_shortest:
            raise _not_der(start)
    if length > end - begin:
        raise _not_der(start)
    return Value(data, data[start], start, begin, begin + length)


def object_identifier(value: Value) -> str:
    """Return an OBJECT IDENTIFIER in dotted decimal. Raises ValueError."""
    content = value.expect(OBJECT_IDENTIFIER, "an object identifier").content
    if not 0 < len(content) <= _MAX_IDENTIFIER_BYTES or content[-1] >= _LONG_FORM:
        raise _not_der(value.start)
    numbers: list[int] = []
    number, is_open = 0, False
    for byte in content:
        if byte == _LONG_FORM and not is_open:
            raise _not_der(value.start)
        number, is_open = number << 7 | byte & 0x7F, byte >= _LONG_FORM
        if not is_open:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _not_der(start: int) -> ValueError:
    return ValueError(f"the value at byte {start} is not DER, or longer than can be read")
