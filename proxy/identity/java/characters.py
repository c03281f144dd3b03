"""Sets of characters, as Java's regular expressions name them and as Python's can write them.

A set is a tuple of ranges of code points, first and last, in order and apart.
"""

from collections.abc import Iterable
from typing import Final

Characters = tuple[tuple[int, int], ...]

_LAST: Final = 0x10FFFF
_TO_LOWER: Final = ord("a") - ord("A")


def united(ranges: Iterable[tuple[int, int]]) -> Characters:
    """Return the set of all characters in any of the ranges."""
    apart: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    return tuple(apart)


def all_but(characters: Characters) -> Characters:
    """Return the set of all other characters."""
    others: list[tuple[int, int]] = []
    begin = 0
    for first, last in characters:
        if begin < first:
            others.append((begin, first - 1))
        begin = last + 1
    if begin <= _LAST:
        others.append((begin, _LAST))
    return tuple(others)


def in_any_case(characters: Characters) -> Characters:
    """Return the set with both cases of its ASCII letters: Java's CASE_INSENSITIVE without UNICODE_CASE."""
    upper, lower = (ord("A"), ord("Z")), (ord("a"), ord("z"))
    return united(
        (
            *characters,
            *((first + _TO_LOWER, last + _TO_LOWER) for first, last in _common(characters, upper)),
            *((first - _TO_LOWER, last - _TO_LOWER) for first, last in _common(characters, lower)),
        )
    )


def _common(characters: Characters, bounds: tuple[int, int]) -> Iterable[tuple[int, int]]:
    cut = ((max(first, bounds[0]), min(last, bounds[1])) for first, last in characters)
    return ((first, last) for first, last in cut if first <= last)


def of(text: str) -> Characters:
    return united((ord(character), ord(character)) for character in text)


def written(characters: Characters) -> str:
    """Return the pattern of Python's ``re`` for one character of the set."""
    if len(characters) == 1 and characters[0][0] == characters[0][1]:
        return _escaped(characters[0][0])
    if not characters:
        return f"[^{_range(*ALL[0])}]"
    return f"[{''.join(_range(first, last) for first, last in characters)}]"


def _range(first: int, last: int) -> str:
    return _escaped(first) if first == last else f"{_escaped(first)}-{_escaped(last)}"


def _escaped(point: int) -> str:
    character = chr(point)
    if character.isascii() and character.isalnum():
        return character
    return f"\\x{point:02x}" if point <= 0xFF else f"\\U{point:08x}"


LINE_ENDS: Final = of("\n\r\x85\u2028\u2029")
ALL: Final = all_but(())

_DIGITS: Final = united([(0x30, 0x39)])
_SPACES: Final = of(" \t\n\x0b\f\r")
_LETTERS: Final = in_any_case(united([(ord("A"), ord("Z"))]))

PREDEFINED: Final = {
    "d": _DIGITS,
    "D": all_but(_DIGITS),
    "s": _SPACES,
    "S": all_but(_SPACES),
    "w": united((*_LETTERS, *_DIGITS, *of("_"))),
    "W": all_but(united((*_LETTERS, *_DIGITS, *of("_")))),
}
"""By the letter behind the backslash. ASCII alone, as without UNICODE_CHARACTER_CLASS."""

CASED: Final = {"Lower": united([(ord("a"), ord("z"))]), "Upper": united([(ord("A"), ord("Z"))])}
"""The POSIX classes that depend on case."""

POSIX: Final = {
    **CASED,
    "ASCII": united([(0x00, 0x7F)]),
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": united((*_LETTERS, *_DIGITS)),
    "Punct": united([(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]),
    "Graph": united([(0x21, 0x7E)]),
    "Print": united([(0x20, 0x7E)]),
    "Blank": of(" \t"),
    "Cntrl": united([(0x00, 0x1F), (0x7F, 0x7F)]),
    "XDigit": united([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
    "Space": _SPACES,
}
"""By the name in ``\\p{}``."""
