"""Whom a quota is for."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from quotas.names import configured_as

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection that has not proved another (KafkaPrincipal.ANONYMOUS)."""


class Default(Enum):
    """The default entity of a dimension; never equal to a name, not even to a client literally called ``<default>``."""

    DEFAULT = "<default>"

    # Enum hashes its name in Python code; a member is a singleton, so its identity serves and is an order cheaper.
    __hash__ = object.__hash__


Name = str | Default | None
"""A name, the default entity, or None where the dimension is not part of the entity."""


@dataclass(frozen=True, slots=True)
class Entity:
    """(user, client-id), (user), (client-id) or (ip); each a name or the default. A name that is too long is cut as
    those off the wire are, so that they match.

    Raises ValueError for a combination that Kafka does not know (ClientQuotaControlManager.validateEntity).
    """

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def __post_init__(self) -> None:
        user, client_id = self.user, self.client_id
        if self.ip is not None:
            if user is not None or client_id is not None:
                raise ValueError("ip cannot be combined with user or client-id in one quota entity")
        elif user is None and client_id is None:
            raise ValueError("a quota entity needs a user, a client-id or an ip")
        if "" in (user, client_id, self.ip):
            empty = "user" if user == "" else "client-id" if client_id == "" else "ip"
            raise ValueError(f"{empty} is empty: give a name or the default")
        if isinstance(user, str) and (name := configured_as(user)) is not user:
            object.__setattr__(self, "user", name)
        if isinstance(client_id, str) and (name := configured_as(client_id)) is not client_id:
            object.__setattr__(self, "client_id", name)

    def describe(self) -> str:
        """Return e.g. ``user=alice, client-id=<default>``; names that could be mistaken for syntax are quoted."""
        parts = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return ", ".join(f"{dimension}={_shown(name)}" for dimension, name in parts if name is not None)


def _shown(name: str | Default) -> str:
    if isinstance(name, Default):
        return "<default>"
    plain = name.isprintable() and not any(character in "<>,=\"'\\ " for character in name)
    return name if plain else ascii(name)
