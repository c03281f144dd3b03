"""Quota entities: users, client-ids, ips, their defaults, prefixes and groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from quotas.kinds import OF_CLIENT, OF_IP, QuotaKind
from quotas.names import configured_as

ANONYMOUS: Final = "ANONYMOUS"
"""The user of an unauthenticated connection (KafkaPrincipal.ANONYMOUS)."""


class Default(Enum):
    """The default entity of a dimension; never equal to a name, not even to a client literally called ``<default>``."""

    DEFAULT = "<default>"

    # Enum hashes its name in Python code; members are singletons, so their identity is enough and much faster.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Prefix:
    """All client-ids with this prefix. Not known to Kafka."""

    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """The users of a group defined in the quota file. Not known to Kafka."""

    name: str


Name = str | Default | Prefix | Group | None
"""A name, the default entity, a prefix or group, or None if the dimension is not part of the entity."""

EACH: Final = ", shared=false"
"""The end of a prefix rule's description if each client-id has its own counter."""

MAX_PREFIX_BYTES: Final = 63
"""In UTF-8: the part of a client-id that a cut keeps unchanged (``quotas.names``)."""


@dataclass(frozen=True, slots=True)
class Entity:
    """(user, client-id), (user), (client-id) or (ip); each a name or the default, the user also a group and the
    client-id also a prefix. Long names are cut like those from the wire, so that they match.

    ``cap``: its limits apply in addition to the quota that wins (docs/decisions/0022).

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
            raise ValueError("a prefix is of client-ids, and a group of users")  # noqa: TRY004  user input
        if isinstance(client_id, Prefix) and not 0 < len(client_id.text.encode()) <= MAX_PREFIX_BYTES:
            raise ValueError(f"a prefix has 1 to {MAX_PREFIX_BYTES} bytes")
        if isinstance(user, str) and (name := configured_as(user)) is not user:
            object.__setattr__(self, "user", name)
        if isinstance(client_id, str) and (name := configured_as(client_id)) is not client_id:
            object.__setattr__(self, "client_id", name)

    @property
    def kinds(self) -> Mapping[str, QuotaKind]:
        """The quota kinds that Kafka knows for it, by name."""
        return OF_CLIENT if self.ip is None else OF_IP

    def describe(self, *, shared: bool = True) -> str:
        """Return e.g. ``user=alice, client-id=<default>``, or ``cap user-group=tenant``; names that could be mistaken
        for syntax are quoted. ``shared`` False: a prefix whose client-ids each have their own counter.
        """
        parts = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        described = ", ".join(_described(dimension, name) for dimension, name in parts if name is not None)
        return f"{'cap ' if self.cap else ''}{described}{'' if shared else EACH}"

    def as_data(self) -> dict[str, Any]:
        """Return it as in a quota file: ``{"user": "alice", "client-id": {"default": true}}``."""
        data: dict[str, Any] = {}
        for dimension, name in (("user", self.user), ("client-id", self.client_id), ("ip", self.ip)):
            match name:
                case None:
                    pass
                case Default():
                    data[dimension] = {"default": True}
                case Group(group):
                    data["user-group"] = group
                case Prefix(prefix):
                    data[dimension] = {"prefix": prefix}
                case _:
                    data[dimension] = str(name)
        return data


def _described(dimension: str, name: str | Default | Prefix | Group) -> str:
    if isinstance(name, Prefix):
        return f"{dimension}-prefix={_shown(name.text)}"
    if isinstance(name, Group):
        return f"{dimension}-group={_shown(name.name)}"
    return f"{dimension}=<default>" if isinstance(name, Default) else f"{dimension}={_shown(name)}"


def _shown(name: str) -> str:
    plain = name.isprintable() and not any(character in "<>,=\"'\\ " for character in name)
    return name if plain else ascii(name)
