"""The layout language of the API table: the fields of a message in their binary order.

``name:type``, ``?`` nullable, ``[..]`` array, ``{..}`` struct, ``{..}?`` struct after a marker byte (ff null, 01
present), ``#n name:type`` tagged field n. A leading ``~``: flexible (KIP-482), that is lengths are varints and every
struct, including elements of arrays, ends with a section of tagged fields.
"""

import re
from collections import deque
from dataclasses import dataclass
from typing import Final

FIXED_BYTES: Final = {"bool": 1, "i8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "f64": 8, "uuid": 16}
"""Types of fixed size, and their sizes."""

ARRAY: Final = "[]"
STRUCT: Final = "{}"

_TOKEN: Final = re.compile(r"#\d+|\w+:|\w+|[\[\]{}?]")


@dataclass(frozen=True, slots=True)
class Field:
    """A field. ``type`` is a key of FIXED_BYTES, ``string``, ``bytes``, ``records``, ARRAY or STRUCT.

    ``fields`` are those of a struct, or of an array's struct elements; an array of anything else has ``element``
    instead.
    """

    name: str
    type: str
    nullable: bool = False
    tag: int | None = None
    fields: tuple["Field", ...] = ()
    element: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    flexible: bool
    fields: tuple[Field, ...]


def parse_layout(text: str) -> Layout:
    """Read a layout string of the API table, which is trusted to be well-formed."""
    return Layout(text.startswith("~"), _parse_fields(deque(_TOKEN.findall(text))))


def _parse_fields(tokens: deque[str]) -> tuple[Field, ...]:
    fields: list[Field] = []
    while tokens and tokens[0] not in ("]", "}"):
        tag = int(tokens.popleft()[1:]) if tokens[0].startswith("#") else None
        fields.append(_parse_field(tokens.popleft()[:-1], tag, tokens))
    return tuple(fields)


def _parse_field(name: str, tag: int | None, tokens: deque[str]) -> Field:
    kind = tokens.popleft()
    fields: tuple[Field, ...] = ()
    element = ""
    if kind == "[" and not tokens[0].endswith(":"):
        element = tokens.popleft()
    elif kind in ("[", "{"):
        fields = _parse_fields(tokens)
    if kind in ("[", "{"):
        kind += tokens.popleft()
    nullable = bool(tokens) and tokens[0] == "?"
    if nullable:
        tokens.popleft()
    return Field(name, kind, nullable, tag, fields, element)


def fixed_offset(text: str, name: str) -> int | None:
    """Return the offset in bytes of the root's int32 ``name``; None if it varies.

    Raises KeyError if there is no such field. Reads the string only, because it runs for every version at start.
    """
    offset = 0
    for field in text.removeprefix("~ ").split(" "):
        if field == f"{name}:i32":
            return offset
        size = FIXED_BYTES.get(field.partition(":")[2])
        if size is None:
            break
        offset += size
    if f" {name}:i32" not in text:
        raise KeyError(name)
    return None
