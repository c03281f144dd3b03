"""CSV for spreadsheets: names stay names, whatever they begin with."""

import unicodedata
from typing import Final

_FORMULA: Final = frozenset("=+-@\N{MINUS SIGN}")
"""A formula begins with one of these, or with another form that compatibility (NFKC) makes one of them."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
"""Kinds of characters that a spreadsheet passes over, or that nobody sees: control, format, white space."""
_QUOTES: Final = frozenset("\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}")


def harmless(value: object) -> object:
    """Keep a name from being a formula, by a ``'`` before it: who opens a bill must not run what a client is called.

    So is what begins with something unseen: some spreadsheets take a tab, or the end of a line, for the next cell.
    """
    if not isinstance(value, str) or not value:
        return value
    rest = value.lstrip("".join(each for each in set(value) if _is_passed_over(each)))
    begins = unicodedata.normalize("NFKC", rest[:1])[:1]
    is_control = unicodedata.category(value[0]) == "Cc"
    return f"'{value}" if begins in _FORMULA or is_control else value


def _is_passed_over(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN or character in _QUOTES
