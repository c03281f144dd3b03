"""Shared parts of the rules for certificate names and for Kerberos names."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from config.problems import InvalidValue

_MAX_NAME: Final = 200
"""Limit of characters of a name in a message: clients choose it."""


class NoMatchingRule(ValueError):  # noqa: N818  Kafka's word
    """No rule maps a name to a user: for Kafka, authentication has failed."""

    def __init__(self, name: str, why: str = "no rule applies to it") -> None:
        shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
        super().__init__(f"{shown!r}: {why}")


class Case(StrEnum):
    """The letter at the end of a rule: how its result is converted."""

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
def naming_rule(rule: str) -> Iterator[None]:
    """Prefix an InvalidValue raised inside with the rule that it is about."""
    try:
        yield
    except InvalidValue as invalid:
        raise InvalidValue(f"rule {rule!r}: {invalid.message}", invalid.hint) from None
