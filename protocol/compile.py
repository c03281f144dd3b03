"""Compiler from a response's layout to a function that finds throttle_time_ms and the broker addresses in it.

The function is generated Python source: a few lines for each field of variable length, fields of fixed length added up,
and an end after the last field needed. ``p`` is the current offset. Reading past the end of the frame raises IndexError
or struct.error, and the next read detects a count or length that leads there, so nothing is ever allocated for a
claimed size.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.layout import ARRAY, FIXED_BYTES, STRUCT, Field, Layout, parse_layout
from protocol.varint import decode_varint, skip_tags


class Endpoint(NamedTuple):
    """A broker's address in a response; offsets count from the first byte of the frame.

    ``host_offset`` is the offset of the host's length; the host ends where the port begins.
    """

    node_id: int
    host: bytes
    port: int
    id_offset: int
    host_offset: int
    port_offset: int


class Tag(NamedTuple):
    """A tagged field with broker addresses: the offsets of its size, its content, and the byte after that."""

    size_offset: int
    content_offset: int
    content_end: int


Walk = Callable[[bytes, int, list[Endpoint], list[Tag]], int]
"""``walk(frame, body_offset, endpoints, tags)``: fills the lists, returns the offset of throttle_time_ms or -1."""

SlicedWalk = Callable[[bytes, int, list[Endpoint], list[Tag]], Generator[None, None, tuple[int, int]]]
"""As ``Walk``, in slices: yields first, and then after every SLICE_BYTES; the lists may be emptied in between. Returns
the offset of throttle_time_ms or -1, and the offset where it ended.
"""

SLICE_BYTES: Final = 16 * 1024
"""Bytes per slice: one or two milliseconds if all of it is small fields."""

_THROTTLE: Final = "throttle_time_ms"
_NODE_ID: Final = ("node_id", "broker_id")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


def compile_walk(response_layout: str, endpoint_path: str | None, reads: Mapping[str, object] | None = None) -> Walk:
    """Compile the function for a response; ``endpoint_path`` as in ApiSpec. ``reads`` replaces functions that it reads
    with.
    """
    source = walk_source(response_layout, endpoint_path)
    walk: Walk = _compiled(source, reads or {})  # type: ignore[assignment]  # defined by the source
    return walk


def compile_sliced_walk(response_layout: str, endpoint_path: str | None) -> SlicedWalk:
    """Compile the sliced function for a response that may be long."""
    source = walk_source(response_layout, endpoint_path, sliced=True)
    walk: SlicedWalk = _compiled(source, {})  # type: ignore[assignment]  # defined by the source
    return walk


def _compiled(source: str, reads: Mapping[str, object]) -> object:
    namespace: dict[str, object] = {
        "Endpoint": Endpoint,
        "Tag": Tag,
        "int16": _INT16.unpack_from,
        "int32": _INT32.unpack_from,
        "null": _null,
        "varint": decode_varint,
        "skip_long": skip_long,
        "skip_tags": skip_tags,
        "wrong_tag_size": _wrong_tag_size,
        **reads,
    }
    exec(source, namespace)  # noqa: S102  generated from our own table
    return namespace["walk"]


def walk_source(response_layout: str, endpoint_path: str | None, *, sliced: bool = False) -> str:
    """Return the source of the function."""
    layout = parse_layout(response_layout)
    source = _Source(layout.flexible, sliced)
    source.root(_needed(layout, endpoint_path), endpoint_path)
    return "\n".join(source.lines) + "\n"


def skip_long(data: bytes, offset: int, nullable: bool) -> int:
    """Return the offset after a compact string, bytes or records whose length takes more than one byte, or is 0."""
    length, offset = decode_varint(data, offset)
    if length == 0:
        if not nullable:
            raise _null(offset)
        return offset
    return offset + length - 1


def _null(offset: int) -> ProtocolError:
    return ProtocolError(Cause.BAD_BODY, f"null before offset {offset} where a value must be")


def _wrong_tag_size(offset: int) -> ProtocolError:
    return ProtocolError(Cause.BAD_BODY, f"tagged field does not end where its size says, at offset {offset}")


def _needed(layout: Layout, endpoint_path: str | None) -> tuple[Field, ...]:
    """Return the root's fields up to the last one needed; of tagged fields only those needed."""
    wanted = (_THROTTLE, "port" if endpoint_path == "" else endpoint_path)
    fields = [field for field in layout.fields if field.tag is None or _path(field) == endpoint_path]
    last = max((index for index, field in enumerate(fields) if _path(field) in wanted), default=-1)
    return tuple(fields[: last + 1])


def _path(field: Field) -> str:
    return field.name if field.tag is None else f"#{field.tag} {field.name}"


class _Source:
    """Writes the source of a walk; ``ahead`` counts bytes of fixed length that are not yet added to ``p``."""

    def __init__(self, flexible: bool, sliced: bool) -> None:
        self.lines = ["def walk(data, p, endpoints, tags):", "    throttle = -1"]
        if sliced:
            self.lines += ["    yield", f"    pause = p + {SLICE_BYTES}"]
        self._flexible = flexible
        self._sliced = sliced
        self._depth = 1
        self._ahead = 0

    def root(self, fields: tuple[Field, ...], endpoint_path: str | None) -> None:
        for field in fields:
            if field.tag is not None:
                self._tagged_endpoints(field)
            else:
                self._field(field, names_broker=endpoint_path == "", endpoints=_path(field) == endpoint_path)
        self._catch_up()
        self._line("if p > len(data):")
        self._line("    raise IndexError(p)")
        self._line("return throttle, p" if self._sliced else "return throttle")

    def _line(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """Write ``head`` and an indented block; at its end nothing is ahead."""
        self._line(head)
        self._depth += 1
        yield
        self._catch_up()
        self._depth -= 1

    @contextmanager
    def _loop(self, head: str) -> Iterator[None]:
        """Write a loop; only loops make a walk long, so slices end here."""
        with self._block(head):
            if self._sliced:
                self._line("if p > pause:")
                self._line("    yield")
                self._line(f"    pause = p + {SLICE_BYTES}")
            yield

    def _here(self) -> str:
        return f"p + {self._ahead}" if self._ahead else "p"

    def _catch_up(self) -> None:
        if self._ahead:
            self._line(f"p += {self._ahead}")
            self._ahead = 0

    def _field(self, field: Field, *, names_broker: bool = False, endpoints: bool = False) -> None:
        """Write code that skips one field and notes what it must find there."""
        size = FIXED_BYTES.get(field.type)
        if size is not None:
            if field.name == _THROTTLE:
                self._line(f"throttle = {self._here()}")
            elif names_broker and field.name in _NODE_ID:
                self._line(f"id_at = {self._here()}")
            elif names_broker and field.name == "port":
                self._endpoint()
            self._ahead += size
            return
        self._catch_up()
        if field.type == ARRAY:
            self._array(field, endpoints)
        elif field.type == STRUCT:
            self._struct(field)
        elif names_broker and field.name == "host":
            self._host()
        elif self._flexible:
            self._compact_string(field)
        else:
            self._string(field)

    def _string(self, field: Field) -> None:
        """Write code that skips a string (int16 length) or bytes (int32 length); negative lengths are null."""
        self._line(f"n = {'int16' if field.type == 'string' else 'int32'}(data, p)[0]")
        self._line("if n < 0:")
        self._line("    n = 0" if field.nullable else "    raise null(p)")
        self._line(f"p += {2 if field.type == 'string' else 4} + n")

    def _compact_string(self, field: Field) -> None:
        """Write code that skips a compact string: a varint of length + 1, mostly one byte; 0 is null."""
        self._line("n = data[p]")
        self._line("if n < 128:" if field.nullable else "if 0 < n < 128:")
        self._line("    p += n or 1" if field.nullable else "    p += n")
        self._line("else:")
        self._line(f"    p = skip_long(data, p, {field.nullable})")

    def _count(self, *, nullable: bool) -> None:
        """Write code that reads an array's count into ``n``; below 0 for null."""
        if self._flexible:
            self._line("n, p = varint(data, p) if data[p] > 127 else (data[p], p + 1)")
            self._line("n -= 1")
        else:
            self._line("n = int32(data, p)[0]")
            self._line("p += 4")
        if not nullable:
            self._line("if n < 0:")
            self._line("    raise null(p)")

    def _array(self, field: Field, endpoints: bool) -> None:
        self._count(nullable=field.nullable)
        size = self._element_bytes(field)
        if size and not endpoints:
            self._line(f"p += n * {size}" if not field.nullable else f"p += max(n, 0) * {size}")
            return
        with self._loop("for _ in range(n):"):
            if field.element:
                self._field(Field("", field.element))
            else:
                self._fields(field.fields, names_broker=endpoints)

    def _element_bytes(self, field: Field) -> int:
        """Return the size of an array's elements if all have the same, else 0."""
        if field.element:
            return FIXED_BYTES.get(field.element, 0)
        sizes = [FIXED_BYTES.get(member.type, 0) for member in field.fields]
        return 0 if self._flexible or 0 in sizes else sum(sizes)

    def _struct(self, field: Field) -> None:
        if not field.nullable:
            self._fields(field.fields)
            return
        self._line("p += 1")
        with self._block("if data[p - 1] < 128:"):  # the marker: negative is null (NullableSchema)
            self._fields(field.fields)

    def _fields(self, fields: tuple[Field, ...], *, names_broker: bool = False) -> None:
        """Write code that skips the fields of a struct and its tag section."""
        for field in fields:
            if field.tag is None:
                self._field(field, names_broker=names_broker)
        if self._flexible:
            self._catch_up()
            self._line("p = skip_tags(data, p) if data[p] else p + 1")

    def _host(self) -> None:
        self._line("host_at = p")
        if self._flexible:
            self._count(nullable=False)
            self._line("host_from = p")
        else:
            self._line("n = int16(data, p)[0]")
            self._line("if n < 0:")
            self._line("    raise null(p)")
            self._line("host_from = p + 2")
        self._line("p = host_from + n")

    def _endpoint(self) -> None:
        """Write code that adds a broker's address: node id and host were read, the port is next."""
        self._catch_up()
        self._line("node_id, port, host = int32(data, id_at)[0], int32(data, p)[0], data[host_from:p]")
        self._line("endpoints.append(Endpoint(node_id, host, port, id_at, host_at, p))")

    def _tagged_endpoints(self, field: Field) -> None:
        """Write code for the root's tag section; every occurrence of the tag counts, and must end where its
        size says.
        """
        self._catch_up()
        self._line("tag_count, p = varint(data, p)")
        with self._loop("for _ in range(tag_count):"):
            self._line("tag, size_at = varint(data, p)")
            self._line("size, p = varint(data, size_at)")
            self._line("end = p + size")
            with self._block(f"if tag == {field.tag}:"):
                self._line("tags.append(Tag(size_at, p, end))")
                self._array(field, endpoints=True)
                self._line("if p != end:")
                self._line("    raise wrong_tag_size(p)")
            self._line("p = end")
