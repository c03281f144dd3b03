"""Reads the characters and character classes of a Java pattern, one after the other."""

import re
from typing import Final, NoReturn

from config.problems import InvalidValue
from proxy.identity.java import characters
from proxy.identity.java.characters import Characters

_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX: Final = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4})")
_OCTAL: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY: Final = re.compile(r"[pP]\{([A-Za-z]+)\}")
_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class Scanner:
    """A pattern and the place in it. ``any_case`` is the flag ``i``, as it holds at this place."""

    __slots__ = ("any_case", "at", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.any_case = False

    @property
    def is_at_end(self) -> bool:
        return self.at == len(self.pattern)

    def sees(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def sees_any(self, of: str) -> bool:
        return self.pattern[self.at : self.at + 1] in tuple(of)

    def skip(self, text: str) -> bool:
        """Go behind ``text`` if it stands here."""
        if not self.sees(text):
            return False
        self.at += len(text)
        return True

    def take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        """Go behind what has this form if it stands here."""
        match = form.match(self.pattern, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def refuse(self, what: str, at: int) -> NoReturn:
        """Raise InvalidValue for what begins at ``at``."""
        raise InvalidValue(
            f"{what}, at character {at + 1} of {self.pattern!r}",
            "docs/security.md says what is taken of Java's regular expressions",
        )

    def character(self) -> Characters:
        """Read one character that stands for itself, or what is behind a backslash."""
        return self._in_case(self._point_or_set())

    def class_(self) -> Characters:
        """Read a character class, behind its bracket."""
        start = self.at - 1
        is_negated = self.skip("^")
        members = list(self._member(is_first=True))
        while not self.skip("]"):
            if self.is_at_end:
                self.refuse("a [ without its ]", start)
            members += self._member(is_first=False)
        united = characters.united(members)
        return characters.all_but(united) if is_negated else united

    def _member(self, *, is_first: bool) -> Characters:
        start = self.at
        if self.sees_any("[]") or self.sees("&&"):
            self.refuse("in a class an unescaped [ or ], or &&", start)
        if self.sees("-") and not is_first and not self.sees("-]"):
            self.refuse("in a class a - that is neither first, last nor in a range", start)
        first = self._point_or_set()
        if not self.sees("-") or self.sees("-]"):
            return self._in_case(first)
        self.at += 1
        if self.sees_any("[]-"):
            self.refuse("in a class a range that has no end", start)
        last = self._point_or_set()
        if not isinstance(first, int) or not isinstance(last, int) or last < first:
            self.refuse("in a class a range that is none", start)
        return self._in_case(((first, last),))

    def _in_case(self, read: int | Characters) -> Characters:
        found = ((read, read),) if isinstance(read, int) else read
        return characters.in_any_case(found) if self.any_case else found

    def _point_or_set(self) -> int | Characters:
        """Read a character, as its code point, or one of Java's sets of them."""
        start = self.at
        character = self.pattern[start : start + 1]
        if not character:
            self.refuse("the pattern ends too early", start)
        self.at += 1
        if character != "\\":
            return ord(character)
        if (octal := self.take(_OCTAL)) is not None:
            return int(octal[1], 8)
        if (hexadecimal := self.take(_HEX)) is not None:
            return self._point(int(hexadecimal[hexadecimal.lastindex or 0], 16), start)
        if (named := self.take(_PROPERTY)) is not None:
            return self._property(named[1], start, is_negated=named[0].startswith("P"))
        letter = self.pattern[self.at : self.at + 1]
        self.at += 1
        if letter in _CONTROLS:
            return ord(_CONTROLS[letter])
        if letter in characters.PREDEFINED:
            return characters.PREDEFINED[letter]
        if not letter or (letter.isascii() and letter.isalnum()):
            self.refuse(f"\\{letter}", start)
        return ord(letter)

    def _point(self, point: int, start: int) -> int:
        if point > _LAST or point in _SURROGATES:
            self.refuse("a number that is no character", start)
        return point

    def _property(self, name: str, start: int, *, is_negated: bool) -> Characters:
        named = characters.POSIX.get(name)
        if named is None or (self.any_case and name in characters.CASED):
            self.refuse(f"\\p{{{name}}}" + (" with (?i)" if self.any_case else ""), start)
        return characters.all_but(named) if is_negated else named
