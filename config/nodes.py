"""The nodes of a YAML file: texts, mappings and lists with their positions (lines and columns from 1)."""

import re
from collections.abc import Iterator
from typing import Final


class Scalar(str):
    """A text of the file. ``plain``: without quotes; other YAML readers may give it another type."""

    __slots__ = ("column", "line", "plain")
    line: int
    column: int
    plain: bool

    @property
    def ambiguous(self) -> bool:
        """Whether YAML 1.1 or 1.2 reads the text as a boolean, a number or a date and not as text."""
        return self.plain and _NOT_A_TEXT.fullmatch(self) is not None


class Mapping(dict[str, "Node"]):
    """A mapping with ``Scalar`` keys; line and column are its beginning."""

    __slots__ = ("column", "line")
    line: int
    column: int

    def key(self, name: str) -> Scalar:
        """Return the key with its position."""
        return next(key for key in self.scalars() if key == name)

    def scalars(self) -> Iterator[Scalar]:
        """Yield all keys, with their positions."""
        for key in self:
            assert isinstance(key, Scalar)  # noqa: S101  tells mypy what the builder guarantees
            yield key


class Sequence(list["Node"]):
    """A list; line and column are its beginning."""

    __slots__ = ("column", "line")
    line: int
    column: int


Node = Scalar | Mapping | Sequence | None  # None: a key without a value, ``~`` or ``null``
Positioned = Scalar | Mapping | Sequence

# YAML 1.1 (y, no, 0o7, 1:30, 1_000, .inf), YAML 1.2 (1e3) and the two keys with a meaning of their own.
_NOT_A_TEXT: Final = re.compile(
    r"""[yYnN] | (?i:yes|no|true|false|on|off) | (?i:null) | ~ | = | <<
    | [-+]? (?: 0b[01_]+ | 0x[0-9a-fA-F_]+ | 0o?[0-7_]+ | [0-9][0-9_]* (?: : [0-5]?[0-9] )* (?:\.[0-9_]*)?
              | [0-9][0-9_]* (?:\.[0-9_]*)? [eE] [-+]? [0-9]+ | \.[0-9_]+ (?: [eE][-+]?[0-9]+ )? | (?i:\.inf) )
    | (?i:\.nan)
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} (?: [Tt\ ].* )?""",
    re.VERBOSE,
)
