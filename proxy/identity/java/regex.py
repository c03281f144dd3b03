r"""Java's regular expressions, for Python's ``re``: what is taken is equal, and what is not known to be is refused.

Refused are
- word borders `\b \B`: with letters beyond ASCII they differ between releases of Java; and `\G`
- `\R \X \h \H \v \V \N \c`, and any other letter behind a backslash that Java does not define
- classes of Unicode (`\p{L}`, `\p{IsLatin}`, `\pL`); the POSIX ones but `\p{Lower}` and `\p{Upper}` with `(?i)`
- in a class: another class, `&&`, `\Q`, an unescaped `]` or `[`, and a `-` that is neither first, last nor in a range
- the flags `d m u x U`; `i` and `s` are taken
- a reference to a group that is not closed yet, and any with `(?i)`
- a quantifier on a quantifier, an anchor or a look-around; one that allows more than one on a group that can match
  nothing; a possessive one on a group (`(?>…)` is taken)
- capturing groups within a look-around, within `(?>…)` and within a group with any quantifier but `?`: Java leaves set
  there what a failure behind it ought to have undone (what has the quantifier may itself be a capturing group)
- a look-behind of more than one length

The patterns are the operator's and the texts are names, so how long a match takes is the operator's affair: a pattern
such as `(a|aa)*b` takes exponential time, in Java as here. Of a certificate the length is bounded by TLS (100 KiB for
the whole chain), and who presents one has been verified before.
"""

import re
from typing import Final, NamedTuple

from config.problems import InvalidValue
from proxy.identity.java import characters
from proxy.identity.java.scanner import Scanner

# Java's Dollar without MULTILINE: at the end, or before the line end there; never between \r and \n.
_DOLLAR: Final = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"
_ANCHORS: Final = {"^": r"\A", "$": _DOLLAR, r"\A": r"\A", r"\z": r"\Z", r"\Z": _DOLLAR}
_ATOMIC: Final = "(?>"
_LOOK_AROUND: Final = frozenset(("(?=", "(?!", "(?<=", "(?<!"))

_ANCHOR: Final = re.compile(r"\^|\$|\\[AzZ]")
_OPENING: Final = re.compile(
    r"\((?:\?(?:[:=!>]|<[=!]|<(?P<name>[A-Za-z][A-Za-z0-9]*)>|(?P<flags>[A-Za-z-]*)[:)])|(?!\?))"
)
_FLAGS: Final = re.compile(r"(?P<on>[is]*)(?:-(?P<off>[is]*))?")
_REFERENCE: Final = re.compile(r"\\(?:k<(?P<name>[A-Za-z][A-Za-z0-9]*)>|(?P<digits>[1-9][0-9]{0,4}))")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_QUANTIFIER: Final = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?P<low>[0-9]{1,10})(?P<comma>,(?P<high>[0-9]{0,10}))?\})(?P<mode>[?+]?)"
)
_UNLIMITED: Final = 2**31 - 1
_MAX_DEPTH: Final = 50


class _Piece(NamedTuple):
    """A part of the translation; ``kind`` is "character", "group", "capturing group", or "" for what is none."""

    text: str
    can_be_empty: bool
    kind: str = ""


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what Java's ``Pattern.compile`` makes of it. Raises InvalidValue that says what is refused, and where."""
    try:
        return re.compile(translate(pattern))
    except (re.error, OverflowError) as error:
        raise InvalidValue(f"{error.args[0]}, in {pattern!r}") from error


def translate(pattern: str) -> str:
    """Return the pattern for ``re``, to be used without flags. Raises InvalidValue."""
    return _Translation(pattern).whole()


class _Translation:
    __slots__ = ("_closed", "_depth", "_dot_all", "_may_capture", "_names", "_opened", "_scan")

    def __init__(self, pattern: str) -> None:
        self._scan = Scanner(pattern)
        self._depth = 0
        self._dot_all = False
        self._may_capture = True
        self._opened = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}

    def whole(self) -> str:
        piece = self._alternatives()
        if not self._scan.is_at_end:
            self._scan.refuse("a ) without its (", self._scan.at)
        return piece.text

    def _alternatives(self) -> _Piece:
        pieces = [self._sequence()]
        while self._scan.skip("|"):
            pieces.append(self._sequence())
        return _Piece("|".join(piece.text for piece in pieces), any(piece.can_be_empty for piece in pieces))

    def _sequence(self) -> _Piece:
        text, can_be_empty = "", True
        while not self._scan.is_at_end and not self._scan.sees_any("|)"):
            start, opened = self._scan.at, self._opened
            piece = self._piece()
            groups_inside = self._opened - opened - (piece.kind == "capturing group")
            piece = self._quantified(piece, start, groups_inside)
            text += piece.text
            can_be_empty = can_be_empty and piece.can_be_empty
        return _Piece(text, can_be_empty)

    def _piece(self) -> _Piece:
        start = self._scan.at
        if self._scan.sees("("):
            return self._group()
        if (anchor := self._scan.take(_ANCHOR)) is not None:
            return _Piece(_ANCHORS[anchor[0]], can_be_empty=True)
        if (quoted := self._scan.take(_QUOTED)) is not None:
            return self._quoted(quoted[1], start)
        if (reference := self._scan.take(_REFERENCE)) is not None:
            return self._reference(reference, start)
        if self._scan.sees_any("*+?{"):
            self._scan.refuse("a quantifier with nothing to repeat", start)
        if self._scan.skip("."):
            found = characters.ALL if self._dot_all else characters.all_but(characters.LINE_ENDS)
        else:
            found = self._scan.class_() if self._scan.skip("[") else self._scan.character()
        return _Piece(characters.written(found), can_be_empty=False, kind="character")

    def _quantified(self, piece: _Piece, start: int, groups_inside: int = 0) -> _Piece:
        quantifier = self._scan.take(_QUANTIFIER)
        if quantifier is None:
            return piece
        low, high = _bounds(quantifier)
        if not piece.kind or self._scan.sees_any("*+?{"):
            self._scan.refuse("a quantifier on a quantifier, an anchor or a look-around", start)
        if piece.kind != "character" and quantifier["mode"] == "+":
            self._scan.refuse("a possessive quantifier on a group", start)
        if piece.can_be_empty and high > 1:
            self._scan.refuse("a quantifier on a group that can match nothing", start)
        if groups_inside and quantifier["sign"] != "?":
            self._scan.refuse("a capturing group within a repeated group", start)
        if not low <= high <= _UNLIMITED:
            self._scan.refuse("a quantifier that allows nothing", start)
        return _Piece(piece.text + quantifier[0], piece.can_be_empty or low == 0)

    def _group(self) -> _Piece:
        start = self._scan.at
        opening = self._scan.take(_OPENING)
        if opening is None:
            self._scan.refuse("an unknown kind of group", start)
        name, flags = opening["name"], opening["flags"]
        before = self._scan.any_case, self._dot_all
        if flags is not None:
            self._set_flags(flags, start)
            if opening[0].endswith(")"):  # they hold to the end of the group around
                return _Piece("", can_be_empty=True)
        captures = name is not None or opening[0] == "("
        number = self._open(name, start) if captures else 0
        inner = self._inside(opening[0], start)
        self._scan.any_case, self._dot_all = before
        if captures:
            self._closed.add(number)
        if opening[0] in _LOOK_AROUND:
            return _Piece(f"{opening[0]}{inner.text})", can_be_empty=True)
        written = "(?:" if flags is not None else opening[0].replace("?<", "?P<")
        return _Piece(f"{written}{inner.text})", inner.can_be_empty, "capturing group" if captures else "group")

    def _set_flags(self, flags: str, start: int) -> None:
        match = _FLAGS.fullmatch(flags)
        if match is None:
            self._scan.refuse(f"one of the flags {flags}", start)
        on, off = match["on"], match["off"] or ""
        self._scan.any_case = "i" not in off and (self._scan.any_case or "i" in on)
        self._dot_all = "s" not in off and (self._dot_all or "s" in on)

    def _open(self, name: str | None, start: int) -> int:
        if not self._may_capture:
            self._scan.refuse("a capturing group within a look-around or (?>…)", start)
        if name in self._names:
            self._scan.refuse(f"a second group {name}", start)
        self._opened += 1
        if name is not None:
            self._names[name] = self._opened
        return self._opened

    def _inside(self, opening: str, start: int) -> _Piece:
        could_capture = self._may_capture
        self._may_capture = could_capture and opening != _ATOMIC and opening not in _LOOK_AROUND
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._scan.refuse(f"a group within {_MAX_DEPTH} others", start)
        inner = self._alternatives()
        if not self._scan.skip(")"):
            self._scan.refuse("a ( without its )", start)
        self._depth -= 1
        self._may_capture = could_capture
        return inner

    def _quoted(self, text: str, start: int) -> _Piece:
        """Translate what is quoted: a quantifier behind it is for the last character alone."""
        if not text:
            self._scan.refuse("an empty \\Q\\E", start)
        points = (((ord(character), ord(character)),) for character in text)
        pieces = [characters.written(characters.in_any_case(p) if self._scan.any_case else p) for p in points]
        last = self._quantified(_Piece(pieces[-1], can_be_empty=False, kind="character"), start)
        return _Piece("".join(pieces[:-1]) + last.text, len(pieces) == 1 and last.can_be_empty)

    def _reference(self, reference: re.Match[str], start: int) -> _Piece:
        if reference["name"] is not None:
            number = self._names.get(reference["name"], 0)
        else:
            digits = reference["digits"]
            while int(digits) > self._opened and len(digits) > 1:  # without such a group, the last digit is a literal
                digits = digits[:-1]
                self._scan.at -= 1
            number = int(digits)
        if number not in self._closed or self._scan.any_case:
            self._scan.refuse("a reference to a group that is not closed yet, or with (?i)", start)
        return _Piece(f"(?:\\{number})", can_be_empty=True, kind="group")


def _bounds(quantifier: re.Match[str]) -> tuple[int, int]:
    match quantifier["sign"]:
        case "*":
            return 0, _UNLIMITED
        case "+":
            return 1, _UNLIMITED
        case "?":
            return 0, 1
    low = int(quantifier["low"])
    if not quantifier["comma"]:
        return low, low
    return low, int(quantifier["high"] or _UNLIMITED)
