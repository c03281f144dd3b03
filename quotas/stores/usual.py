"""Quotas as they are usually written, read without a parser of YAML: with 100,000 of them, that is most of a start.

Taken is only what every reader takes alike and nobody can have a doubt about: names and limits of few characters, one
quota like the other. Where a text has anything else, nothing of it is read here, and ``file`` reads it all: a name that
is a number to some, a comment among the limits, each mistake. The result is the same.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from config.nodes import Scalar
from quotas.entities import ANONYMOUS, Default, Entity
from quotas.kinds import QuotaKind

Limits = Mapping[QuotaKind, float]
Written = list[tuple[str, str]]
"""(property name, limit) as they stand there."""

_BEGINNING: Final = re.compile(r"(?: *#[ -~]*\n| *\n)*quotas: *\n(?: *#[ -~]*\n| *\n)*( *)- ")
_PAIR: Final = re.compile(r"([a-z_]+): ([0-9][0-9A-Za-z.]*)")
_LONGEST_AMBIGUOUS: Final = len("false")
"""Of words that begin with a letter, and are a boolean or null to some readers."""
_DOUBTFUL: Final = frozenset(("default", ANONYMOUS.casefold()))
_DEFAULT: Final = "{default: true}"


def read(
    text: str, understand: Callable[[Written], Limits | None]
) -> tuple[dict[Entity, Limits], dict[Entity, int]] | None:
    """Return the limits and the line of each entity; None where anything in the text is not as usual.

    ``understand`` is asked once for each way in which limits are written; it returns None where they are not usual.
    """
    beginning = _BEGINNING.match(text)
    if beginning is None:
        return None
    limits: dict[Entity, Limits] = {}
    lines: dict[Entity, int] = {}
    known: dict[str, Limits | None] = {}
    folded: set[tuple[object, object]] = set()
    position = beginning.start(1)
    line = 1 + text.count("\n", 0, position)
    pattern = _pattern(len(beginning[1]))
    while (found := pattern.match(text, position)) is not None:  # a search from each place on would be quadratic
        start, position = found.span()
        if found.lastindex is not None:
            user = _name(found[1] or found[5] or found[8])
            client_id = _name(found[2] or found[3] or found[6] or found[7] or found[9] or found[10])
            written = found[found.lastindex]
            if written not in known:
                pairs: Written = _PAIR.findall(written)
                known[written] = understand(pairs)
            understood = known[written]
            if user == "" or client_id == "" or understood is None:
                return None
            if (both := (_folded(user), _folded(client_id))) in folded:  # the same, or in other letters
                return None
            folded.add(both)
            entity = Entity(user, client_id)
            limits[entity] = understood
            lines[entity] = line
            line += text.count("\n", start, position)
        else:
            line += 1
    if position != len(text):
        return None
    return limits, lines


def _pattern(columns: int) -> re.Pattern[str]:
    """One quota, or a line without one; of the three ways to write it, each with user, client-id, or both."""
    name = r"""([A-Za-z][A-Za-z0-9_.-]{0,63}|"[A-Za-z0-9_.-]{1,64}"|\{default:[ ]true\})"""
    pair = r"[a-z_]+:[ ][0-9][0-9A-Za-z.]*"
    dash = rf"[ ]{{{columns}}}-[ ]"
    below = rf"\n[ ]{{{columns + 2}}}"
    inner = rf"\n[ ]{{{columns + 4}}}"
    in_braces = rf"\{{(?:user:[ ]{name}(?:,[ ]client-id:[ ]{name})?|client-id:[ ]{name})\}}"
    in_lines = rf"(?:{inner}user:[ ]{name}(?:{inner}client-id:[ ]{name})?|{inner}client-id:[ ]{name})"
    return re.compile(
        rf"""{dash}(?:\{{entity:[ ]{in_braces}((?:,[ ]{pair})+)\}}
                    |entity:(?:[ ]{in_braces}|{in_lines})((?:{below}{pair})+))[ ]*\n
             |[ ]*(?:\#[ -~]*)?\n""",
        re.VERBOSE,
    )


def _name(written: str | None) -> str | Default | None:
    """Return a name; "" for one that is to be looked at with more care."""
    if written is None:
        return None
    if written == _DEFAULT:
        return Default.DEFAULT
    name = written
    if written[0] == '"':
        name = written[1:-1]
    elif len(written) <= _LONGEST_AMBIGUOUS:
        scalar = Scalar(written)
        scalar.plain = True
        if scalar.ambiguous:
            return ""
    return "" if name.casefold() in _DOUBTFUL else name


def _folded(name: str | Default | None) -> object:
    return name.casefold() if isinstance(name, str) else name
