"""Which limits are configured, for whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quotas.entities import Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind, Whose
from quotas.names import configured_as

MOST_CAPS: Final = 4
"""Caps of one kind that may hold for one client: each is charged with every request."""

Key = tuple[Name, Name]
"""(user, client-id) as configured; (ip, None) under the kinds that ips have."""

_Book = tuple[QuotaKind, bool]
"""The quotas of one kind, or (True) its caps."""
_BOOKS: Final = tuple((kind, cap) for kind in QuotaKind for cap in (False, True))
LEAST_LIMIT: Final = 1e-9
"""What a lower limit counts as, but 0, which lets nothing through. A quota file takes no lower one; ZooKeeper holds
doubles, by the least of which no time can be divided.
"""

_OF_IP: Final = frozenset(kind for kind in QuotaKind if kind.row.whose is Whose.IP)


@dataclass(frozen=True)
class Terms:
    """What a rule says beside its limits.

    ``shadow``: its limits are measured, and nobody is held for them. ``proposed``: limits that are measured so beside
    those in force, by kind. ``burst_ms``: how much of a limit may be used at once, as time. ``max_delay_ms``: the most
    that any one throttle may delay. None: as for all rules. ``shared``: of a prefix, that all its client-ids have one
    counter together; otherwise each has one, and a full quota.
    """

    shadow: bool = False
    proposed: Mapping[QuotaKind, float] = field(default_factory=dict)
    burst_ms: int | None = None
    max_delay_ms: int | None = None
    shared: bool = True
    only: tuple[QuotaKind, ...] | None = None


class KindTerms(NamedTuple):
    """The terms of a rule, as they are for one of its limits."""

    shadow: bool = False
    proposed: float | None = None
    burst_ms: int | None = None
    max_delay_ms: int | None = None
    shared: bool = True


PLAIN: Final = KindTerms()
_NO_TERMS: Final = Terms()


@dataclass(frozen=True)
class Policy:
    """All configured limits, in the units of their kind (bytes/s, percent of one thread, mutations/s, connections/s).

    Quotas, of which one wins for each client and kind; and caps (``Entity.cap``), which all hold besides. What is asked
    for by kind is asked for of either.

    Raises ValueError where an entity is given a kind that Kafka does not know for it, and where terms are about a limit
    that is not there.
    """

    limits: Mapping[Entity, Mapping[QuotaKind, float]] = field(default_factory=dict)
    terms: Mapping[Entity, Terms] = field(default_factory=dict)
    """Of the rules that have any."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The users of each group. Nobody is in two."""
    group_of: dict[str, str] = field(init=False, repr=False, compare=False)
    """By user. Not to be changed."""
    _prefixes: dict[_Book, set[int]] = field(init=False, repr=False, compare=False)
    _grouped: set[_Book] = field(init=False, repr=False, compare=False)
    _terms: dict[_Book, dict[Key, KindTerms]] = field(init=False, repr=False, compare=False)
    _tables: dict[_Book, dict[Key, float]] = field(init=False, repr=False, compare=False)
    _clients: dict[tuple[Key, bool], Entity] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Indexed here, where a policy is made, and not in Engine.apply, which must not hold up the event loop.
        tables: dict[_Book, dict[Key, float]] = {book: {} for book in _BOOKS}
        clients: dict[tuple[Key, bool], Entity] = {}
        prefixes: dict[_Book, set[int]] = {}
        grouped: set[_Book] = set()
        for entity, limits in self.limits.items():
            key = (entity.user, entity.client_id)
            cap = entity.cap
            if entity.ip is None:
                clients[key, cap] = entity
            else:
                key = (entity.ip, None)
            if isinstance(entity.client_id, Prefix):
                for kind in limits:
                    prefixes.setdefault((kind, cap), set()).add(len(entity.client_id.text))
            if isinstance(entity.user, Group):
                grouped.update((kind, cap) for kind in limits)
                if entity.user.name not in self.groups:
                    raise ValueError(f"no group is called {entity.user.name!r}")
            for kind, limit in limits.items():
                if (kind in _OF_IP) != (entity.ip is not None):
                    raise ValueError(f"{kind} is not a quota of {entity.describe()}")
                tables[kind, cap][key] = max(float(limit), LEAST_LIMIT) if limit else 0.0
        object.__setattr__(self, "group_of", self._groups_by_user())
        object.__setattr__(self, "_prefixes", prefixes)
        object.__setattr__(self, "_grouped", grouped)
        object.__setattr__(self, "_terms", self._terms_by_kind())
        object.__setattr__(self, "_tables", tables)
        object.__setattr__(self, "_clients", clients)

    def table(self, kind: QuotaKind, *, cap: bool = False) -> dict[Key, float]:
        """Return the limits of one kind. Not to be changed."""
        return self._tables[kind, cap]

    def has(self, kind: QuotaKind) -> bool:
        """Whether there is any limit of one kind, be it a quota or a cap."""
        return bool(self._tables[kind, False] or self._tables[kind, True])

    def prefix_lengths(self, kind: QuotaKind, *, cap: bool = False) -> tuple[int, ...]:
        """Return how many characters the prefixes have that limits of one kind are for, the longest first."""
        return tuple(sorted(self._prefixes.get((kind, cap), ()), reverse=True))

    def groups_of(self, kind: QuotaKind, *, cap: bool = False) -> dict[str, str]:
        """Return the group of each user, if any limit of one kind is for groups. Not to be changed."""
        return self.group_of if (kind, cap) in self._grouped else {}

    def _groups_by_user(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for group, users in self.groups.items():
            for user in map(configured_as, users):
                if found.setdefault(user, group) != group:
                    raise ValueError(f"{user!r} is in the groups {found[user]!r} and {group!r}")
        return found

    def terms_of(self, kind: QuotaKind, *, cap: bool = False) -> dict[Key, KindTerms]:
        """Return the terms of the limits of one kind that have any. Not to be changed."""
        return self._terms[kind, cap]

    def _terms_by_kind(self) -> dict[_Book, dict[Key, KindTerms]]:
        found: dict[_Book, dict[Key, KindTerms]] = {book: {} for book in _BOOKS}
        for entity, terms in self.terms.items():
            limits = self.limits.get(entity, {})
            if entity.ip is not None or (terms.shadow and terms.proposed) or terms.proposed.keys() - limits.keys():
                raise ValueError(f"terms of {entity.describe()} that are about no limit in force of a client")
            said_of = limits if terms.only is None else [kind for kind in limits if kind in terms.only]
            for kind in said_of if terms != _NO_TERMS else ():
                found[kind, entity.cap][entity.user, entity.client_id] = KindTerms(
                    terms.shadow, terms.proposed.get(kind), terms.burst_ms, terms.max_delay_ms, terms.shared
                )
        return found

    def client(self, key: Key, *, cap: bool = False) -> Entity:
        """Return the entity of users and client-ids that is configured as ``key``."""
        return self._clients[key, cap]


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


def other_terms(old: dict[Key, KindTerms], new: dict[Key, KindTerms]) -> set[Key]:
    """Return the keys whose terms are not the same."""
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)} if old or new else set()
