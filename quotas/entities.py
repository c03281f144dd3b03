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


@dataclass(frozen=True, slots=True)
class Prefix:
    """The client-ids that begin so. Kafka has none of these."""

    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """The users of a group that the quotas define. Kafka has none of these."""

    name: str


Name = str | Default | Prefix | Group | None
"""A name, the default entity, several names, or None where the dimension is not part of the entity."""

EACH: Final = ", shared=false"
"""What the description of a rule ends with whose client-ids have a counter each, though it is for a prefix."""
BETWEEN: Final = "; "
"""What stands between two descriptions in one text."""

MAX_PREFIX_BYTES: Final = 63
"""In UTF-8: of a client-id that is cut because it is long, so much is left as it was (``quotas.names``)."""


@dataclass(frozen=True, slots=True)
class Entity:
    """(user, client-id), (user), (client-id) or (ip); each a name or the default, the user also a group and the
    client-id also a prefix. A name that is too long is cut as those off the wire are, so that they match.

    ``cap``: what is configured for it holds besides the quota that wins (docs/decisions/0022).

    Raises ValueError for a combination that Kafka does not know (ClientQuotaControlManager.validateEntity).
    """

    user: Name = None
    client_id: Name = None
    ip: Name = None
    cap: bool = False

    def __post_init__(self) -> None:
        user, client_id = self.user, self.client_id
        if self.ip is not None:
            if user is not None or client_id is not None:
                raise ValueError("ip cannot be combined with user or client-id in one quota entity")
            if self.cap:
                raise ValueError("a cap is of users and client-ids: an address has one quota")
        elif user is None and client_id is None:
            raise ValueError("a quota entity needs a user, a client-id or an ip")
        if "" in (user, client_id, self.ip):
            empty = "user" if user == "" else "client-id" if client_id == "" else "ip"
            raise ValueError(f"{empty} is empty: give a name or the default")
        if isinstance(user, Prefix) or isinstance(client_id, Group) or isinstance(self.ip, Prefix | Group):
            raise ValueError("a prefix is of client-ids, and a group of users")  # noqa: TRY004  of what somebody wrote
        if isinstance(client_id, Prefix) and not 0 < len(client_id.text.encode()) <= MAX_PREFIX_BYTES:
            raise ValueError(f"a prefix has 1 to {MAX_PREFIX_BYTES} bytes")
        if isinstance(user, str) and (name := configured_as(user)) is not user:
            object.__setattr__(self, "user", name)
        if isinstance(client_id, str) and (name := configured_as(client_id)) is not client_id:
            object.__setattr__(self, "client_id", name)

    def describe(self, *, shared: bool = True) -> str:
        """Return e.g. ``user=alice, client-id=<default>``, or ``cap user-group=tenant``; names that could be mistaken
        for syntax are quoted. Not ``shared``: of a prefix whose client-ids have a counter each.
        """
        parts = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        described = ", ".join(_described(dimension, name) for dimension, name in parts if name is not None)
        return f"{'cap ' if self.cap else ''}{described}{'' if shared else EACH}"


def _described(dimension: str, name: str | Default | Prefix | Group) -> str:
    if isinstance(name, Prefix):
        return f"{dimension}-prefix={_shown(name.text)}"
    if isinstance(name, Group):
        return f"{dimension}-group={_shown(name.name)}"
    return f"{dimension}=<default>" if isinstance(name, Default) else f"{dimension}={_shown(name)}"


def _shown(name: str) -> str:
    plain = name.isprintable() and not any(character in "<>,=\"'\\ " for character in name)
    return name if plain else ascii(name)
