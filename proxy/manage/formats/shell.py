"""Commands of a shell script, as words: quotes, comments and lines that go on, and nothing that a shell would run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<space>(?:[ \t\r]|\\\r?\n)+)
      | (?P<end>[\n;])
      | (?P<comment>(?<![^\s;])\#[^\n]*)
      | (?P<single>'[^']*')
      | (?P<double>"(?:[^"\\]|\\.)*")
      | (?P<escaped>\\[^\n])
      | (?P<strange>[|&<>()`])
      | (?P<plain>[^\s;'"\\|&<>()`]+)""",
    re.VERBOSE | re.DOTALL,
)
_IN_QUOTES: Final = re.compile(r"\\([\"\\$`])|\\\r?\n")
_VARIABLE: Final = re.compile(r"(?<!\\)(?:\\\\)*[$`]")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command. ``varies``: a shell would put something else in its place."""

    text: str
    varies: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """The words of one command, and the line on which it begins."""

    line: int
    words: tuple[Word, ...]


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a script. Raises ValueError with the line of a quote that does not end."""
    line = begun = 1
    words: list[Word] = []
    parts: list[Word] = []
    position = 0

    def finish_word() -> None:
        if parts:
            words.append(Word("".join(part.text for part in parts), any(part.varies for part in parts)))
            parts.clear()

    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(line)
        position = found.end()
        kind, token = str(found.lastgroup), found.group()
        if kind in ("space", "end", "comment"):
            finish_word()
        else:
            if not (words or parts):
                begun = line
            parts.append(_part(kind, token))
        if kind == "end" and words:
            yield Command(begun, tuple(words))
            words = []
        line += token.count("\n")
    finish_word()
    if words:
        yield Command(begun, tuple(words))


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
