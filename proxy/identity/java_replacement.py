"""The replacements of ``Matcher.replaceAll`` and ``replaceFirst``."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from config.problems import InvalidValue
from proxy.identity.java_regex import JavaPattern

Replacement = tuple[str | int, ...]
"""Literal texts and numbers of groups, in order."""

_PART: Final = re.compile(
    r"\\(?P<literal>.)|\$(?:(?P<digits>[0-9]+)|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})|(?P<plain>[^\\$]+)", re.DOTALL
)


def parse_replacement(text: str, pattern: JavaPattern) -> Replacement:
    r"""Read a replacement for ``pattern``: ``$n`` and ``${name}`` are groups, ``\x`` is x.

    Raises InvalidValue for what makes ``Matcher.appendReplacement`` throw at the first match, a group that is not there
    or a ``$`` or backslash with nothing behind it; and for a group in which Java may leave something else.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise InvalidValue(f"a {text[at]} that means nothing, at character {at + 1} of {text!r}")
        at = part.end()
        if part["literal"] or part["plain"]:
            parts.append(part["literal"] or part["plain"])
            continue
        number = pattern.regex.groupindex.get(part["name"] or "", -1)
        if part["digits"]:  # a digit is taken while there is such a group
            taken = 1
            while int(part["digits"][: taken + 1]) <= pattern.regex.groups and taken < len(part["digits"]):
                taken += 1
            number, at = int(part["digits"][:taken]), part.start("digits") + taken
        if not 0 <= number <= pattern.regex.groups:
            raise InvalidValue(f"{part[0]} in {text!r}: the pattern has no such group")
        if number in pattern.unsure:
            message = f"{part[0]} in {text!r}: a group within a repeated group, a look-around or (?>…)"
            raise InvalidValue(message, "Java may leave something else in it: refer to a group around it")
        parts.append(number)
    return tuple(parts)


def replaced(pattern: JavaPattern, replacement: Replacement, text: str, *, everywhere: bool = True) -> str:
    """Return the text with all matches replaced, or the first alone."""
    matches: Iterable[re.Match[str]] = pattern.found(text)
    parts: list[str] = []
    at = 0
    for match in islice(matches, None if everywhere else 1):
        parts.append(text[at : match.start()])
        parts += (part if isinstance(part, str) else match[part] or "" for part in replacement)
        at = match.end()
    return "".join((*parts, text[at:]))
