"""The varints of a response that names brokers at its end, up to there: what ``ResumableWalk`` follows.

A flexible response (KIP-482) is nothing but bytes of fixed length, varints, and what the varints count.
"""

from typing import Final

from protocol.layout import ARRAY, FIXED_BYTES, STRUCT, Field, parse_layout
from protocol.table import ApiSpec

BLOB: Final = 0
"""A string, bytes or records: the varint is their length + 1, 0 for null."""
ELEMENTS: Final = 1
"""An array: the varint is its count + 1, 0 for null."""
TAGS: Final = 2
"""A section of tagged fields: the varint is their number; of each, tag and size are varints."""

_HEADER_BYTES: Final = 8  # size, correlation id


class Outline:
    """The steps of a walk, one for each varint: each of the four lists has a member for every step.

    ``ahead``: the bytes of fixed length in front of it, and behind the last step those in front of the end. ``kinds``:
    what it counts. ``jumps``: for an array, the step behind its elements; for an element's last step, the element's
    first; else 0. ``least``: for an array, the fewest bytes that an element has.

    ``tag``: the tagged field with the brokers, with which the end begins; -1 if they are an array in front of the tags.
    ``names_nobody``: an end without brokers.
    """

    __slots__ = ("_fixed_bytes", "ahead", "jumps", "kinds", "least", "names_nobody", "spec", "tag")

    def __init__(self, spec: ApiSpec) -> None:
        self.spec = spec
        self.ahead: list[int] = []
        self.kinds: list[int] = []
        self.jumps: list[int] = []
        self.least: list[int] = []
        path = spec.endpoint_path or ""
        self.tag = int(path[1:].partition(" ")[0]) if path.startswith("#") else -1
        self.names_nobody = b"\1\0" if self.tag < 0 else b"\0"
        self._fixed_bytes = _HEADER_BYTES
        if spec.response_header_version == 1:
            self._step(TAGS)
        for field in parse_layout(spec.response_layout).fields:
            if field.tag is not None or field.name == path:
                break
            self._field(field)
        self.ahead.append(self._fixed_bytes)

    def _step(self, kind: int) -> int:
        """Add a step, and return its least size in bytes."""
        self.ahead.append(self._fixed_bytes)
        self.kinds.append(kind)
        self.jumps.append(0)
        self.least.append(0)
        self._fixed_bytes = 0
        return 1

    def _struct(self, fields: tuple[Field, ...]) -> int:
        return sum(self._field(field) for field in fields if field.tag is None) + self._step(TAGS)

    def _field(self, field: Field) -> int:
        """Add the steps of a field, and return its least size in bytes."""
        if field.type in FIXED_BYTES:
            self._fixed_bytes += FIXED_BYTES[field.type]
            return FIXED_BYTES[field.type]
        if field.type == STRUCT and not field.nullable:
            return self._struct(field.fields)
        if field.type == ARRAY and not field.element:
            array = len(self.kinds)
            self._step(ELEMENTS)
            self.least[array] = self._struct(field.fields)
            self.jumps[-1] = array + 1
            self.jumps[array] = len(self.kinds)
            return 1
        if field.type in (ARRAY, STRUCT):
            raise NotImplementedError(f"{self.spec}: {field.name} in front of broker addresses")
        return self._step(BLOB)
