"""What of a quota file no replay takes into account."""

from dataclasses import fields
from typing import Final

from quotas.policy import Terms

_PLAIN: Final = Terms()
_REPLAYED: Final = frozenset(("shadow", "proposed", "shared"))
"""Of ``Terms``: what is in shadow or proposed holds nobody, and is replayed as that."""


def not_replayed(terms: Terms) -> list[str]:
    """Return what a rule says that no replay takes into account, in words of quota files.

    Whatever is new among the terms of rules is not replayed until somebody says here that it is.
    """
    differ = [each.name for each in fields(terms) if getattr(terms, each.name) != getattr(_PLAIN, each.name)]
    return [name.removesuffix("_ms") for name in differ if name not in _REPLAYED]
