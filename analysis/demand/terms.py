"""Terms of rules that no replay takes into account."""

from dataclasses import fields
from typing import Final

from quotas.policy import Terms

_PLAIN: Final = Terms()
_REPLAYED: Final = frozenset(("shadow", "proposed", "shared"))
"""Fields of ``Terms``: limits in shadow or proposed hold nobody, and are replayed as that."""


def not_replayed(terms: Terms) -> list[str]:
    """Return what a rule says that no replay takes into account, in words of quota files.

    A new term is not replayed until it is named here.
    """
    differ = [each.name for each in fields(terms) if getattr(terms, each.name) != getattr(_PLAIN, each.name)]
    return [name.removesuffix("_ms") for name in differ if name not in _REPLAYED]
