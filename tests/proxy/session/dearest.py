"""The messages of any API that may cost a reader most: as many of the smallest things as fit into so many bytes.

They are made from the API table, so that an API which is added to it is tried without a word here.
"""

from collections.abc import Iterator
from functools import lru_cache

from protocol.layout import ARRAY, FIXED_BYTES, STRUCT, Field, parse_layout
from tests.protocol.encode import varint

MOST_TAGS = 1000
"""In one section: more are refused as soon as their number is there."""

Path = tuple[str, ...]
_layout = lru_cache(maxsize=None)(parse_layout)


def bodies(layout: str, size: int, *, distinct: bool = True, most: int = 1 << 30) -> Iterator[tuple[str, bytes]]:
    """Yield bodies of about ``size`` bytes, with what each has most of, ``most`` at the most; the first has nothing.

    ``distinct``: also of things that have a name each, which take long to make.
    """
    parsed = _layout(layout)
    yield "nothing", _struct(parsed.fields, parsed.flexible)
    whats = ["same"] + ["distinct"] * distinct + ["tagged"] * parsed.flexible
    for path in _arrays(parsed.fields):
        for what in whats:
            yield f"{'.'.join(path)}: {what}", _filled(parsed.fields, parsed.flexible, path, what, size, most)
    if _has_text(parsed.fields):
        yield "text", _struct(parsed.fields, parsed.flexible, text=size)
    if parsed.flexible:
        yield "tags", _struct(parsed.fields, parsed.flexible)[:-1] + _tags(min(MOST_TAGS, size // 2))


def _arrays(fields: tuple[Field, ...]) -> Iterator[Path]:
    for field in fields:
        if field.tag is None and field.type == ARRAY:
            yield (field.name,)
        if field.tag is None and field.type in (ARRAY, STRUCT):
            yield from ((field.name, *path) for path in _arrays(field.fields))


def _has_text(fields: tuple[Field, ...]) -> bool:
    return any(field.type in ("string", "bytes", "records") for field in fields if field.tag is None)


def _filled(fields: tuple[Field, ...], flexible: bool, path: Path, what: str, size: int, most: int) -> bytes:
    """Return a struct whose array at ``path`` is as long as ``size`` allows."""
    least = len(_at(fields, flexible, path, b"", 0))
    content, number = _elements(_find(fields, path), flexible, what, max(size - least - 4, 0), most)
    return _at(fields, flexible, path, content, number)


def _at(fields: tuple[Field, ...], flexible: bool, path: Path, content: bytes, number: int) -> bytes:
    """Return a struct with that array at ``path``; on the way there arrays have one element, the others none."""
    parts = []
    for field in fields:
        if field.tag is not None:
            continue
        if field.name != path[0]:
            parts.append(_smallest(field, flexible))
        elif len(path) == 1:
            parts.append(_count(number, flexible) + content)
        else:
            inner = _at(field.fields, flexible, path[1:], content, number)
            marker = b"\1" if field.type == STRUCT and field.nullable else b""
            parts.append((_count(1, flexible) if field.type == ARRAY else marker) + inner)
    return b"".join(parts) + (b"\0" if flexible else b"")


def _find(fields: tuple[Field, ...], path: Path) -> Field:
    found = next(field for field in fields if field.name == path[0] and field.tag is None)
    return found if len(path) == 1 else _find(found.fields, path[1:])


def _elements(array: Field, flexible: bool, what: str, size: int, most: int) -> tuple[bytes, int]:
    """Return elements that take ``size`` bytes, and how many they are."""
    if what == "distinct":
        parts: list[bytes] = []
        left = size
        while left > 0 and len(parts) <= most:
            parts.append(_element(array, flexible, len(parts) + 1))
            left -= len(parts[-1])
        return b"".join(parts[:-1]), max(len(parts) - 1, 0)
    one = _element(array, flexible, None)
    if what == "tagged" and not array.element:
        one = one[:-1] + _tags(20)
    number = min(size // max(len(one), 1), most)
    return one * number, number


def _element(array: Field, flexible: bool, number: int | None) -> bytes:
    """Return an element: the smallest there is, or one that has ``number`` in its names, ids and ports."""
    if array.element:
        return _smallest(Field("", array.element), flexible, number)
    return _struct(array.fields, flexible, number)


def _struct(fields: tuple[Field, ...], flexible: bool, number: int | None = None, text: int = 0) -> bytes:
    parts = []
    for field in fields:
        if field.tag is None:
            parts.append(_smallest(field, flexible, number, text))
            if text and field.type in ("string", "bytes", "records"):
                text = 0
    return b"".join(parts) + (b"\0" if flexible else b"")


def _smallest(field: Field, flexible: bool, number: int | None = None, text: int = 0) -> bytes:
    if field.type in FIXED_BYTES:
        width = FIXED_BYTES[field.type]
        is_id = field.type in ("i32", "uuid") and field.name not in ("partition_index", "replication_factor")
        return ((number or 0) if is_id else 0).to_bytes(width, "big")
    if field.type == STRUCT:
        return b"\xff" if field.nullable else _struct(field.fields, flexible, number)
    if field.type == ARRAY:
        return _count(0, flexible)
    content = b"x" * min(text, 32_000 if field.type == "string" else text) if text else b""
    if number is not None:
        content = b"%x" % number
    if flexible:
        return varint(len(content) + 1) + content
    return len(content).to_bytes(2 if field.type == "string" else 4, "big") + content


def _count(number: int, flexible: bool) -> bytes:
    return varint(number + 1) if flexible else number.to_bytes(4, "big")


def _tags(number: int) -> bytes:
    """Return a section of empty tagged fields that nobody knows."""
    return varint(number) + b"".join(varint(1000 + tag) + b"\0" for tag in range(number))
