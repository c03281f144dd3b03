r"""The regular expressions and replacements of mapping rules: those that mean the same in Java and in Python.

``.``, ``$``, ``\p{Alnum}``, ``(?<name>`` and ``(…)*+`` are rewritten, and what is not the same is refused by its name.

How long a match takes is the operator's affair, whose patterns they are: `(a|aa)*b` takes exponential time in Java too.
TLS bounds the length of a certificate (100 KiB for the whole chain), and who presents one has been verified before.

Refused are
- a letter or number behind a backslash, but for `\Q…\E`, `\d \D \s \S \w \W \b \B \A \z \Z \t \n \r \f \a \e \xhh
  \uhhhh`, and ASCII's classes in `\p{…}`, of which `\p{Lower}` and `\p{Upper}` not with `(?i)`
- in a class: another class, `&&`, `\Q`, `\P`, an unescaped `]` or `[`, and a `-` that is neither first, last nor in a
  range
- flags, but for `(?i)`, `(?s)`, `(?is)` at the beginning, and `(?i:…)`, `(?-i:…)`
- from the replacement, a reference to a group within a repeated group, a look-around or `(?>…)`: Java may leave
  something else in it
- a quantifier on a quantifier, an anchor or a look-around; one that allows more than one on a group that can match
  nothing; `{n}+` on a group
- a look-behind of more than one length
- with `\b` or `\B`, names beyond ASCII: releases of Java differ in which of their letters make a word
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

from config.problems import InvalidValue
from proxy.identity.mapping_rule import NoMatchingRule

_POSIX: Final = {
    "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9", "Lower": "a-z", "Upper": "A-Z", "XDigit": "0-9A-Fa-f",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Space": r"\s", "Blank": r" \t",
    "ASCII": r"\x00-\x7f", "Cntrl": r"\x00-\x1f\x7f",
}  # fmt: skip
_ESCAPED: Final = r"\\(?:[tnrfa]|x[0-9A-Fa-f]{2}|u(?![dD][89a-fA-F])[0-9A-Fa-f]{4}|[^A-Za-z0-9])"
_ONE: Final = rf"(?:{_ESCAPED}|\\e|(?!&&)[^\\\[\]-])"
_CLASS: Final = rf"\[(?!\^?\])\^?-?(?:{_ONE}-{_ONE}|{_ONE}|\\[dDsSwW]|\\p\{{[A-Za-z]+\}})*-?\]"
_TOKEN: Final = re.compile(
    rf"""(?P<open>\((?:\?(?:[:=!>]|<[=!]|-?i:|<(?P<name>[A-Za-z][A-Za-z0-9]*)>)|(?!\?))) | (?P<or>\|)
    | (?P<anchor>\^|\$|\\[AzZbB]) | \\Q(?!\\E)(?P<quoted>.+?)(?:\\E|\Z)
    | \\(?P<p>[pP])\{{(?P<property>[A-Za-z]+)\}} | (?P<class>{_CLASS}) | (?P<dot>\.) | (?P<e>\\e)
    | (?P<same>\\[dDsSwW]|{_ESCAPED}) | (?P<plain>[^\\()\[{{|*+?])""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER: Final = re.compile(
    rf"\\p\{{(?P<property>\w+)\}}|(?P<e>\\e)|(?P<same>\\[dDsSwW]|{_ESCAPED}|-)|(?P<plain>.)", re.DOTALL
)
_QUANTIFIER: Final = re.compile(r"(?P<count>[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})(?P<mode>[?+]?)")
# Java's Dollar without MULTILINE: at the end, or before the line end there; never between \r and \n.
_DOLLAR: Final = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"
_ANCHORS: Final = {"^": r"\A", "$": _DOLLAR, r"\A": r"\A", r"\z": r"\Z", r"\Z": _DOLLAR, r"\b": r"\b", r"\B": r"(?!\b)"}
_HIDING: Final = frozenset(("(?=", "(?!", "(?<=", "(?<!", "(?>"))
_FLAGS: Final = re.compile(r"\(\?(?:i|s|is|si)\)|")
_CONSTRUCT: Final = re.compile(r"\\[pPk]?[{<][^}>]*.?|\\.?|\(\?[^:)]{0,8}[:)]?|\[[^\]]*\]?|\{[^}]*\}?|.|", re.DOTALL)

Replacement = tuple[str | int, ...]
"""Literal texts and numbers of groups, in order."""

_PART: Final = re.compile(
    r"\\(?P<literal>.)|\$(?:(?P<digits>[0-9]+)|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})|(?P<plain>[^\\$]+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A pattern; ``unsure`` are the groups in which Java may leave something else than Python."""

    regex: re.Pattern[str]
    unsure: frozenset[int]
    ascii_only: bool

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Raises NoMatchingRule where that depends on the release of Java."""
        return self._checked(text) and self.regex.fullmatch(text) is not None

    def found(self, text: str) -> Iterator[re.Match[str]]:
        """Yield what ``Matcher.find`` finds: behind an empty match it goes a character further, where ``re`` stays."""
        at = 0
        while self._checked(text) and at <= len(text) and (match := self.regex.search(text, at)) is not None:
            yield match
            at = match.end() if match.end() > match.start() else match.end() + 1

    def _checked(self, text: str) -> bool:
        if self.ascii_only and not text.isascii():
            raise NoMatchingRule(text, "whether a rule with \\b applies depends on the release of Java")
        return True


def compiled(pattern: str) -> JavaPattern:
    """Return what Java's ``Pattern.compile`` makes of it. Raises InvalidValue that says what is refused, and where."""
    reading = _Reading(pattern)
    try:
        text, _ = reading.alternatives()
        if reading.at < len(pattern):
            reading.refuse()
        regex = re.compile(reading.flags + text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidValue(f"{error.args[0]}, in {pattern!r}") from error
    return JavaPattern(regex, frozenset(reading.unsure), r"\b" in text)


class _Reading:
    """The state of reading a pattern."""

    def __init__(self, pattern: str) -> None:
        found = _FLAGS.match(pattern)
        self.flags = found[0] if found is not None else ""
        self.pattern, self.at = pattern, len(self.flags)
        self.any_case = "(?i" in pattern or "(?si" in pattern or "(?-i" in pattern
        self.groups = 0
        self.unsure: set[int] = set()

    def refuse(self, what: str = "not taken", at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        construct = _CONSTRUCT.match(self.pattern, at)
        shown = construct[0] if construct is not None else ""
        raise InvalidValue(
            f"{what}: {shown or 'its end'}, at character {at + 1} of {self.pattern!r}",
            "docs/security.md says what is taken of Java's regular expressions",
        )

    def alternatives(self) -> tuple[str, bool]:
        """Translate up to a ``)``, the end, or what is refused; return whether it can match nothing, too."""
        text, is_empty, others = "", True, False
        while (token := _TOKEN.match(self.pattern, self.at)) is not None:
            self.at = token.end()
            if token["or"]:
                text, is_empty, others = text + "|", True, others or is_empty
            elif token["anchor"]:
                text += _ANCHORS[token[0]]
            else:
                atom, can_be_empty = self._atom(token)
                text, is_empty = text + atom, is_empty and can_be_empty
        return text, is_empty or others

    def _atom(self, token: re.Match[str]) -> tuple[str, bool]:
        if token["open"]:
            return self._group(token)
        if token["quoted"]:  # a quantifier behind it is for the last character alone
            last, can_be_empty = self._quantified(token, re.escape(token["quoted"][-1]))
            return re.escape(token["quoted"][:-1]) + last, can_be_empty and len(token["quoted"]) == 1
        if token["class"]:
            negated = token["class"].startswith("[^")
            members = _MEMBER.sub(self._written, token["class"][1 + negated : -1])
            return self._quantified(token, f"[{'^' * negated}{members}]")
        if token["property"]:
            return self._quantified(token, f"[{'^' * (token['p'] == 'P')}{self._written(token)}]")
        if token["dot"]:
            return self._quantified(token, "." if "s" in self.flags else r"[^\n\r\x85\u2028\u2029]")
        return self._quantified(token, self._written(token))

    def _written(self, token: re.Match[str]) -> str:
        r"""Return one character or ``\p{…}`` in Python's syntax, for use in or outside of a class."""
        if token["property"]:
            if token["property"] not in _POSIX or (self.any_case and token["property"] in ("Lower", "Upper")):
                self.refuse("no class of ASCII, or one that depends on (?i)", self.pattern.index(token[0]))
            return _POSIX[token["property"]]
        return r"\x1b" if token["e"] else token["same"] or re.escape(token["plain"])

    def _group(self, token: re.Match[str]) -> tuple[str, bool]:
        opening = token["open"]
        number = self.groups + 1 if opening == "(" or token["name"] else 0
        outside = self.groups = max(self.groups, number)
        inner, can_be_empty = self.alternatives()
        if self.at == len(self.pattern):
            self.refuse("a ( without its )", token.start())
        if self.pattern[self.at] != ")":
            self.refuse()
        self.at += 1
        inside = range(outside + 1, self.groups + 1)
        if opening in _HIDING:
            self.unsure.update(inside)
        text = f"{opening.replace('?<', '?P<') if token['name'] else opening}{inner})"
        if opening in _HIDING and opening != "(?>":
            return text, True  # and no quantifier may follow
        return self._quantified(token, text, can_be_empty=can_be_empty, group=(number, inside))

    def _quantified(
        self, token: re.Match[str], text: str, *, can_be_empty: bool = False, group: tuple[int, range] | None = None
    ) -> tuple[str, bool]:
        quantifier = _QUANTIFIER.match(self.pattern, self.at)
        if quantifier is None:
            return text, can_be_empty
        self.at = quantifier.end()
        count = quantifier["count"]
        if can_be_empty and count not in ("?", "{1}", "{0,1}", "{1,1}"):
            self.refuse("a quantifier on a group that can match nothing", token.start())
        can_be_empty = can_be_empty or count in ("*", "?") or count.startswith("{0")
        if group is None or (count == "?" and quantifier["mode"] != "+"):
            return text + quantifier[0], can_be_empty
        self.unsure.update(group[1])
        if quantifier["mode"] != "+":
            return text + quantifier[0], can_be_empty
        if count[0] == "{":
            self.refuse("{n}+ on a group", token.start())
        self.unsure.add(group[0])
        return f"(?>{text}{count})", can_be_empty


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
    parts: list[str] = []
    at = 0
    for match in islice(pattern.found(text), None if everywhere else 1):
        parts.append(text[at : match.start()])
        parts += (part if isinstance(part, str) else match[part] or "" for part in replacement)
        at = match.end()
    return "".join((*parts, text[at:]))
