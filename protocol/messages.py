"""Reading and writing whole messages by their layouts, for the few that need it, off the hot path.

A message is a dict of its fields by name: numbers, bools, str, None for null, lists for arrays, and dicts for structs.
Tagged fields are skipped when read, and never written.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from protocol.errors import Cause, ProtocolError
from protocol.fields import Fields
from protocol.layout import ARRAY, Field, Layout, parse_layout
from protocol.varint import encode_varint

Message = dict[str, Any]

MOST_ELEMENTS: Final = 20_000
"""The most elements in all arrays of a message together: each takes a microsecond or two of the event loop."""

_NUMBERS: Final = {
    "bool": Struct(">?"),
    "i8": Struct(">b"),
    "i16": Struct(">h"),
    "u16": Struct(">H"),
    "i32": Struct(">i"),
    "u32": Struct(">I"),
    "i64": Struct(">q"),
    "f64": Struct(">d"),
    "uuid": Struct("16s"),
}

_layout: Final = lru_cache(maxsize=64)(parse_layout)


def read_message(what: str, layout: str, data: bytes, at: int, end: int, most_elements: int = MOST_ELEMENTS) -> Message:
    """Read a message with ``layout`` from ``at``; further bytes up to ``end``, from a newer sender, are skipped.

    Raises ProtocolError if the message ends too early, has null where it must not, or has too many elements.
    """
    parsed = _layout(layout)
    return _Reading(what, Fields(what, data, at, end, parsed.flexible), most_elements).struct(parsed.fields)


def write_message(layout: str, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message; ``values`` has a value for every field that is not tagged."""
    parsed = _layout(layout)
    parts: list[bytes] = []
    _write_struct(parts, parsed, parsed.fields, values)
    return b"".join(parts)


class _Reading:
    def __init__(self, what: str, fields: Fields, most_elements: int) -> None:
        self._what = what
        self._fields = fields
        self._elements = 0
        self._most_elements = most_elements

    def struct(self, layout: tuple[Field, ...]) -> Message:
        found = {field.name: self._value(field) for field in layout if field.tag is None}
        self._fields.tags()
        return found

    def _value(self, field: Field) -> Any:
        fields = self._fields
        if field.type in _NUMBERS:
            return fields.number(_NUMBERS[field.type])
        if field.type == ARRAY:
            return self._array(field)
        if field.type == "string":
            text = fields.string() if field.nullable else fields.text()
            return None if text is None else self._decoded(text)
        raise NotImplementedError(f"{field.type} of {field.name}")  # not in any message that is read as a whole

    def _array(self, field: Field) -> list[Any] | None:
        count = self._fields.count() if field.nullable else self._fields.counted()
        self._elements += max(count, 0)
        if self._elements > self._most_elements:
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE, f"{self._what} lists more than {self._most_elements} things: send several"
            )
        if count < 0:
            return None
        element = Field("", field.element)
        return [self._value(element) if field.element else self.struct(field.fields) for _ in range(count)]

    def _decoded(self, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise ProtocolError(Cause.BAD_BODY, f"{self._what} has a string that is not UTF-8: {text[:40]!r}") from None


def _write_struct(parts: list[bytes], layout: Layout, fields: tuple[Field, ...], values: Mapping[str, Any]) -> None:
    for field in fields:
        if field.tag is None:
            _write(parts, layout, field, values[field.name])
    if layout.flexible:
        parts.append(b"\0")


def _write(parts: list[bytes], layout: Layout, field: Field, value: Any) -> None:
    if field.type in _NUMBERS:
        parts.append(_NUMBERS[field.type].pack(value))
    elif field.type == ARRAY:
        parts.append(_length(layout, value, ">i"))
        element = Field("", field.element)
        for each in value or ():
            if field.element:
                _write(parts, layout, element, each)
            else:
                _write_struct(parts, layout, field.fields, each)
    elif field.type == "string":
        encoded = None if value is None else value.encode("utf-8", "replace")
        parts += [_length(layout, encoded, ">h"), encoded or b""]
    else:
        raise NotImplementedError(f"{field.type} of {field.name}")


def _length(layout: Layout, value: Any, form: str) -> bytes:
    """Return the length prefix of a string or an array; ``value`` None is null."""
    length = -1 if value is None else len(value)
    return encode_varint(length + 1) if layout.flexible else Struct(form).pack(length)
