"""User names, and the pseudo principals that no real user can be confused with.

Quotas can be set for a pseudo principal as for any user. No client can choose to become one: a user whose real name
begins with the prefix is counted as ``sluice:reserved``, and one with an empty name as ``sluice:unnamed``, because no
quota applies to an empty user.
"""

from typing import Final

_PREFIX: Final = "sluice:"
RESERVED: Final = f"{_PREFIX}reserved"
UNNAMED: Final = f"{_PREFIX}unnamed"


def confirmed(name: str) -> str:
    """Return the user for a name that the broker has accepted."""
    return RESERVED if name.startswith(_PREFIX) else somebody(name)


def somebody(user: str) -> str:
    """Return ``user``, or ``UNNAMED`` if it is empty, as a subject or the result of a mapping rule may be."""
    return user or UNNAMED


def of_mechanism(mechanism: str, credential: str = "") -> str:
    """Return the user for a client whose mechanism does not show its name, but perhaps a credential."""
    return f"{_PREFIX}{mechanism}:{credential}" if credential else f"{_PREFIX}{mechanism}"


def token_holder(token_id: str) -> str:
    """Return the user for a delegation token whose owner is unknown."""
    return f"{_PREFIX}token:{token_id}"


def is_pseudo(user: str) -> bool:
    return user.startswith(_PREFIX)
