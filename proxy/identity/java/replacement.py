"""What ``Matcher.replaceAll`` and ``replaceFirst`` do: the replacement's syntax, and where matches are found."""

import re
from collections.abc import Iterator
from typing import Final

from config.problems import InvalidValue

Replacement = tuple[str | int, ...]
"""Literal texts and numbers of groups, in order."""

_PART: Final = re.compile(
    r"\\(?P<literal>.)|\$(?:(?P<digit>[0-9])|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})|(?P<plain>[^\\$]+)", re.DOTALL
)


def parse_replacement(text: str, pattern: re.Pattern[str]) -> Replacement:
    r"""Read a replacement for ``pattern``: ``$n`` and ``${name}`` are groups, ``\x`` is x.

    Raises InvalidValue for what makes ``Matcher.appendReplacement`` throw at the first match: a group that is not
    there, and a ``$`` or backslash with nothing behind it.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise InvalidValue(f"a {text[at]} that means nothing, at character {at + 1} of {text!r}")
        at = part.end()
        if part["digit"] is not None:
            number, at = _group_number(text, part.start("digit"), pattern.groups)
            parts.append(number)
        elif part["name"] is not None:
            parts.append(_named(part["name"], text, pattern))
        else:
            parts.append(part["literal"] or part["plain"])
    return tuple(parts)


def _group_number(text: str, at: int, groups: int) -> tuple[int, int]:
    """Return the number of the group, and the place behind it: a digit is taken while there is such a group."""
    number = int(text[at])
    if number > groups:
        raise InvalidValue(f"${number} in {text!r}, and the pattern has {groups} groups")
    at += 1
    while at < len(text) and text[at] in "0123456789" and number * 10 + int(text[at]) <= groups:
        number = number * 10 + int(text[at])
        at += 1
    return number, at


def _named(name: str, text: str, pattern: re.Pattern[str]) -> int:
    if name not in pattern.groupindex:
        raise InvalidValue(f"${{{name}}} in {text!r}, and the pattern has no such group")
    return pattern.groupindex[name]


def replace_all(pattern: re.Pattern[str], replacement: Replacement, text: str) -> str:
    return _replaced(text, found(pattern, text), replacement)


def replace_first(pattern: re.Pattern[str], replacement: Replacement, text: str) -> str:
    match = pattern.search(text)
    return text if match is None else _replaced(text, iter((match,)), replacement)


def found(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what ``Matcher.find`` finds: behind an empty match it goes on a character further, where ``re`` stays."""
    at = 0
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        yield match
        at = match.end() if match.end() > match.start() else match.end() + 1


def _replaced(text: str, matches: Iterator[re.Match[str]], replacement: Replacement) -> str:
    parts: list[str] = []
    at = 0
    for match in matches:
        parts.append(text[at : match.start()])
        parts += (part if isinstance(part, str) else match[part] or "" for part in replacement)
        at = match.end()
    return "".join((*parts, text[at:]))
