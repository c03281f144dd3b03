"""Frames from values by the layouts of the API table: for tests that need a response no codec at hand can write.

It shares only protocol/layout.py with the code under test; test_codecs.py holds it against other people's codecs.
"""

import struct
from collections.abc import Mapping
from typing import Any

from protocol.layout import ARRAY, FIXED_BYTES, STRUCT, Field, parse_layout
from protocol.table import ApiSpec

_FORMATS = {"bool": ">?", "i8": ">b", "i16": ">h", "u16": ">H", "i32": ">i", "u32": ">I", "i64": ">q", "f64": ">d"}


def encode_frame(spec: ApiSpec, values: Mapping[str, Any], correlation_id: int = 1) -> bytes:
    """Return the response frame; members left out are 0, empty or null, and their tags absent."""
    layout = parse_layout(spec.response_layout)
    body = encode_fields(layout.fields, values, flexible=layout.flexible)
    payload = struct.pack(">i", correlation_id) + b"\0" * spec.response_header_version + body
    return struct.pack(">i", len(payload)) + payload


def encode_request(spec: ApiSpec, values: Mapping[str, Any], correlation_id: int = 1, client_id: str = "app") -> bytes:
    """Return the request frame, likewise."""
    layout = parse_layout(spec.request_layout)
    name = client_id.encode()
    header = struct.pack(">hhih", spec.api_key, spec.api_version, correlation_id, len(name)) + name
    if spec.request_header_version == 2:
        header += b"\0"
    payload = header + encode_fields(layout.fields, values, flexible=layout.flexible)
    return struct.pack(">i", len(payload)) + payload


def encode_fields(fields: tuple[Field, ...], values: Mapping[str, Any], *, flexible: bool) -> bytes:
    """Return the bytes of a struct; a value under ``_unknown_tags`` is {tag: bytes}."""
    untagged = [field for field in fields if field.tag is None]
    body = b"".join(encode(field, values.get(field.name), flexible=flexible) for field in untagged)
    if not flexible:
        return body
    tags: dict[int, bytes] = dict(values.get("_unknown_tags", {}))
    for field in fields:
        if field.tag is not None and field.name in values:
            tags[field.tag] = encode(field, values[field.name], flexible=True)
    return (
        body
        + varint(len(tags))
        + b"".join(varint(tag) + varint(len(content)) + content for tag, content in sorted(tags.items()))
    )


def encode(field: Field, value: Any, *, flexible: bool) -> bytes:
    """Return the bytes of one field."""
    if field.type in FIXED_BYTES:
        return bytes(value or 16) if field.type == "uuid" else struct.pack(_FORMATS[field.type], value or 0)
    if field.type == STRUCT:
        if value is None and field.nullable:
            return b"\xff"
        return (b"\1" if field.nullable else b"") + encode_fields(field.fields, value or {}, flexible=flexible)
    if value is None and not field.nullable:
        value = ()
    if field.type == ARRAY:
        items = [_encode_item(field, item, flexible=flexible) for item in value or ()]
        return _length(None if value is None else len(items), 4, flexible=flexible) + b"".join(items)
    content = None if value is None else value.encode() if isinstance(value, str) else bytes(value)
    width = 2 if field.type == "string" else 4
    return _length(None if content is None else len(content), width, flexible=flexible) + (content or b"")


def _encode_item(field: Field, item: Any, *, flexible: bool) -> bytes:
    if field.element:
        return encode(Field("", field.element), item, flexible=flexible)
    return encode_fields(field.fields, item, flexible=flexible)


def _length(length: int | None, width: int, *, flexible: bool) -> bytes:
    if flexible:
        return varint(0 if length is None else length + 1)
    return (-1 if length is None else length).to_bytes(width, "big", signed=True)


def varint(value: int) -> bytes:
    """Return an unsigned varint in its shortest form."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
