"""Commands of a shell script, as words: quotes, comments and lines that go on, and nothing that a shell would run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<joined>\\\r?\n)
      | (?P<space>[ \t\r]+)
      | (?P<end>\n|;|&&|\|\||\||&)
      | (?P<comment>(?<![^\s;&|])\#[^\n]*)
      | (?P<redirected>(?<![^\s;&|])[0-9]*(?:>>|>|<)(?!<)&?[ \t]*[^\s;&|<>()'"\\$`]+)
      | (?P<single>'[^']*')
      | (?P<double>"(?:[^"\\]|\\.)*")
      | (?P<escaped>\\.)
      | (?P<strange>[<>()`])
      | (?P<plain>[^\s;&|<>()'"\\`]+)""",
    re.VERBOSE | re.DOTALL,
)
_IN_QUOTES: Final = re.compile(r"\\([\"\\$`])|\\\r?\n")
_VARIABLE: Final = re.compile(r"(?<!\\)(?:\\\\)*[$`]")


class UnendedError(ValueError):
    """A quote that does not end."""

    def __init__(self, line: int) -> None:
        super().__init__(f"the quote on line {line} does not end")
        self.line = line


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command. ``varies``: a shell would put something else in its place."""

    text: str
    varies: bool = False


@dataclass(slots=True)
class Command:
    """The words of one command, and the line on which it begins."""

    line: int
    words: list[Word] = field(default_factory=list)


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a script. Raises UnendedError."""
    line = 1
    command = Command(line)
    parts: list[Word] = []
    position = 0
    while position < len(text) or parts or command.words:
        found = _TOKEN.match(text, position)
        if found is None and position < len(text):
            raise UnendedError(line)
        kind, token = ("end", "\n") if found is None else (str(found.lastgroup), found.group())
        position += len(token)
        if kind in ("space", "end", "comment", "redirected"):
            if parts:
                command.words.append(Word("".join(part.text for part in parts), any(part.varies for part in parts)))
                parts = []
        elif kind != "joined":
            if not (command.words or parts):
                command.line = line
            parts.append(_part(kind, token))
        if kind == "end" and command.words:
            yield command
            command = Command(line)
        line += token.count("\n")


def _part(kind: str, token: str) -> Word:
    match kind:
        case "single":
            return Word(token[1:-1])
        case "double":
            inside = token[1:-1]
            return Word(_IN_QUOTES.sub(lambda found: found[1] or "", inside), _VARIABLE.search(inside) is not None)
        case "escaped":
            return Word(token[1:])
        case "strange":
            return Word(token, varies=True)
    return Word(token, "$" in token)
