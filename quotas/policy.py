"""Which limits are configured, for whom."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quotas.entities import Entity, Name
from quotas.kinds import QuotaKind, Whose

Key = tuple[Name, Name]
"""(user, client-id) as configured; (ip, None) under the kinds that ips have."""

_OF_IP: Final = frozenset(kind for kind in QuotaKind if kind.row.whose is Whose.IP)


@dataclass(frozen=True)
class Policy:
    """All configured limits, in the units of their kind (bytes/s, percent of one thread, mutations/s, connections/s).

    Raises ValueError where an entity is given a kind that Kafka does not know for it.
    """

    limits: Mapping[Entity, Mapping[QuotaKind, float]] = field(default_factory=dict)
    _tables: dict[QuotaKind, dict[Key, float]] = field(init=False, repr=False, compare=False)
    _clients: dict[Key, Entity] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Indexed here, where a policy is made, and not in Engine.apply, which must not hold up the event loop.
        tables: dict[QuotaKind, dict[Key, float]] = {kind: {} for kind in QuotaKind}
        clients: dict[Key, Entity] = {}
        for entity, limits in self.limits.items():
            key = (entity.user, entity.client_id)
            if entity.ip is None:
                clients[key] = entity
            else:
                key = (entity.ip, None)
            for kind, limit in limits.items():
                if (kind in _OF_IP) != (entity.ip is not None):
                    raise ValueError(f"{kind} is not a quota of {entity.describe()}")
                tables[kind][key] = float(limit)
        object.__setattr__(self, "_tables", tables)
        object.__setattr__(self, "_clients", clients)

    def table(self, kind: QuotaKind) -> dict[Key, float]:
        """Return the limits of one kind. Not to be changed."""
        return self._tables[kind]

    def client(self, key: Key) -> Entity:
        """Return the entity of users and client-ids that is configured as ``key``."""
        return self._clients[key]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """How many limits (one entity under one kind) a new policy added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


def differences(old: dict[Key, float], new: dict[Key, float]) -> tuple[set[Key], set[Key], set[Key]]:
    """Return the keys (added, changed, removed)."""
    if not old:
        return set(new), set(), set()
    touched = {key for key, limit in new.items() if old.get(key) != limit}
    added = touched - old.keys()
    removed = set() if len(old) + len(added) == len(new) else old.keys() - new.keys()
    return added, touched - added, removed
