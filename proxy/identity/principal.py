"""What a user is called whom nobody can be confused with: the pseudo principals, and the prefix that is theirs.

Quotas can be set for a pseudo principal as for any user. No client ever becomes one by its own choice of name: a
user whose real name begins with the prefix is counted as ``sluice:reserved``, and one whose name is empty as
``sluice:unnamed``: to the quotas, an empty user is none at all, whom no quota of users holds.
"""

from typing import Final

_PREFIX: Final = "sluice:"
RESERVED: Final = f"{_PREFIX}reserved"
UNNAMED: Final = f"{_PREFIX}unnamed"


def confirmed(name: str) -> str:
    """Return the user for a name, as it is counted, that the broker has accepted."""
    return RESERVED if name.startswith(_PREFIX) else somebody(name)


def somebody(user: str) -> str:
    """Return ``user``, or who stands for all whose name is empty: a certificate may have no subject, a mapping rule no
    result.
    """
    return user or UNNAMED


def unread(mechanism: str) -> str:
    """Return the user for a client that is authenticated by a mechanism which does not show its name."""
    return f"{_PREFIX}{mechanism}"


def of_credential(mechanism: str, credential: str) -> str:
    """Return the user for a client that is authenticated by such a mechanism, and by a credential of its own."""
    return f"{_PREFIX}{mechanism}:{credential}"


def token_holder(token_id: str) -> str:
    """Return the user for a delegation token whose owner is not known (yet)."""
    return f"{_PREFIX}token:{token_id}"


def is_pseudo(user: str) -> bool:
    """Whether ``user`` stands for somebody whose name is not known."""
    return user.startswith(_PREFIX)
