"""The nodes of a YAML file: texts, and mappings and lists that know the places in them (libyaml's marks, from 0).

The texts themselves have none: a quota file has a million of them.
"""

import re
from typing import Final, Protocol


class Mark(Protocol):
    """A place in the file, as libyaml gives it: line and column from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class Scalar(str):
    """A text of the file, in quotes if it is not ``Plain``."""

    __slots__ = ()

    @property
    def ambiguous(self) -> bool:
        """Whether YAML 1.1 or 1.2 reads the text as a boolean, a number or a date and not as text."""
        return False


class Plain(Scalar):
    """A text without quotes; other YAML readers may give it another type."""

    __slots__ = ()

    @property
    def ambiguous(self) -> bool:
        return _NOT_A_TEXT.fullmatch(self) is not None


class Mapping(dict[str, "Node"]):
    """A mapping; ``marks`` are the places of its keys and values in turn."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.marks: list[Mark | None] = []

    def places(self, key: str) -> tuple[Mark, Mark]:
        """Return the places of a key and its value."""
        index = 2 * list(self).index(key)
        return _known(self.marks[index]), _known(self.marks[index + 1])


class Sequence(list["Node"]):
    """A list; ``marks`` are the places of its items."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.marks: list[Mark | None] = []

    def place(self, index: int) -> Mark:
        return _known(self.marks[index])


def _known(mark: Mark | None) -> Mark:
    assert mark is not None  # noqa: S101  for mypy: libyaml always says where
    return mark


Node = Scalar | Mapping | Sequence | None  # None: a key without a value, ``~`` or ``null``

# YAML 1.1 (y, no, 0o7, 1:30, 1_000, .inf), YAML 1.2 (1e3) and the two keys with a meaning of their own.
_NOT_A_TEXT: Final = re.compile(
    r"""[yYnN] | (?i:yes|no|true|false|on|off) | (?i:null) | ~ | = | <<
    | [-+]? (?: 0b[01_]+ | 0x[0-9a-fA-F_]+ | 0o?[0-7_]+ | [0-9][0-9_]* (?: : [0-5]?[0-9] )* (?:\.[0-9_]*)?
              | [0-9][0-9_]* (?:\.[0-9_]*)? [eE] [-+]? [0-9]+ | \.[0-9_]+ (?: [eE][-+]?[0-9]+ )? | (?i:\.inf) )
    | (?i:\.nan)
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} (?: [Tt\ ].* )?""",
    re.VERBOSE,
)
