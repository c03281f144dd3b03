"""Shared parts of the rules for certificate names and for Kerberos names."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from config.problems import InvalidValue

_MAX_NAME: Final = 200
"""Limit of characters of a name in a message: clients choose it."""


class NoMatchingRule(ValueError):  # noqa: N818  Kafka's word
    """No rule maps a name to a user: for Kafka, authentication has failed."""

    def __init__(self, name: str, why: str = "no rule applies to it") -> None:
        shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
        super().__init__(f"{shown!r}: {why}")


CASES: Final[Mapping[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}
"""The letter at the end of a rule: how its result is converted."""


@contextmanager
def naming_rule(rule: str) -> Iterator[None]:
    """Prefix an InvalidValue raised inside with the rule that it is about."""
    try:
        yield
    except InvalidValue as invalid:
        raise InvalidValue(f"rule {rule!r}: {invalid.message}", invalid.hint) from None
