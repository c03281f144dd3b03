"""What the rules for certificate names and those for Kerberos names have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from config.problems import InvalidValue

_MAX_NAME: Final = 200
"""Of a name that is told: it is the client's."""


class NoMatchingRule(ValueError):  # noqa: N818  Kafka's word
    """The rules make no user of a name: to Kafka, its authentication has failed."""

    def __init__(self, name: str, why: str = "no rule applies to it") -> None:
        shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
        super().__init__(f"{shown!r}: {why}")


class Case(StrEnum):
    """The letter that a rule ends with: what becomes of its result."""

    KEPT = ""
    LOWER = "L"
    UPPER = "U"

    def of(self, name: str) -> str:
        match self:
            case Case.KEPT:
                return name
            case Case.LOWER:
                return name.lower()
            case Case.UPPER:
                return name.upper()


@contextmanager
def telling(rule: str) -> Iterator[None]:
    """Put in front of what is wrong within one of several rules which one it is."""
    try:
        yield
    except InvalidValue as invalid:
        raise InvalidValue(f"rule {rule!r}: {invalid.message}", invalid.hint) from None
