"""Finds a text that matches a regular expression, as an example for its result."""

import re
from collections.abc import Iterable
from re import _parser as parser  # type: ignore[attr-defined]  # how re itself reads a pattern
from typing import Any, Final

_TRIED: Final = "srx0-._ ,=@/"
_MOST_CHARS: Final = 100


def example_of(pattern: re.Pattern[str]) -> str | None:
    """Return a text that matches the whole ``pattern``; None if no simple one is found."""
    try:
        text = _of(parser.parse(pattern.pattern, pattern.flags))
    except (LookupError, ValueError, TypeError):
        return None
    return text if len(text) <= _MOST_CHARS and pattern.fullmatch(text) is not None else None


def _of(parts: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_part(str(operation), argument) for operation, argument in parts)


def _part(operation: str, argument: Any) -> str:
    match operation:
        case "LITERAL":
            return chr(argument)
        case "NOT_LITERAL":
            return next(char for char in _TRIED if ord(char) != argument)
        case "ANY":
            return "s"
        case "IN":
            return _char(argument)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, of = argument
            return _of(of) * int(min(max(least, 2), most))
        case "SUBPATTERN" | "ATOMIC_GROUP" | "BRANCH":
            return _of(_within(operation, argument))
        case _:  # anchors, look-arounds and references: checked by the final match
            return ""


def _within(operation: str, argument: Any) -> Iterable[tuple[Any, Any]]:
    """Return the content of a group, or of the first alternative."""
    within: Iterable[tuple[Any, Any]] = argument
    if operation != "ATOMIC_GROUP":
        within = argument[-1] if operation == "SUBPATTERN" else argument[1][0]
    return within


def _char(members: list[tuple[Any, Any]]) -> str:
    """Return a character in a class, preferably a common one."""
    within = re.compile(_class(members), re.DOTALL)
    literals = [chr(argument) for operation, argument in members if str(operation) == "LITERAL"]
    first = [chr(argument[0]) for operation, argument in members if str(operation) == "RANGE"]
    found: str = next(char for char in (*_TRIED, *literals, *first) if within.fullmatch(char))
    return found


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def _class(members: list[tuple[Any, Any]]) -> str:
    said = ""
    for operation, argument in members:
        match str(operation):
            case "NEGATE":
                said = "^"
            case "LITERAL":
                said += re.escape(chr(argument))
            case "RANGE":
                said += f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
            case _:
                said += _CATEGORIES[str(argument)]
    return f"[{said}]"
