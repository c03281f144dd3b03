"""The quota policy: all configured limits, the entities they are for, and their terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quotas.entities import Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind, Whose
from quotas.names import configured_as

MOST_CAPS: Final = 4
"""The most caps of one kind that may apply to one client: each is charged with every request."""

Key = tuple[Name, Name]
"""(user, client-id) as configured; (ip, None) for kinds of ips."""

_Book = tuple[QuotaKind, bool]
"""(kind, cap): the quotas of one kind, or its caps if True."""
_BOOKS: Final = tuple((kind, cap) for kind in QuotaKind for cap in (False, True))
LEAST_LIMIT: Final = 1e-9
"""The least limit above 0; lower ones are raised to it. A quota file accepts none lower; ZooKeeper holds doubles, and
division by the smallest ones overflows.
"""

_OF_IP: Final = frozenset(kind for kind in QuotaKind if kind.row.whose is Whose.IP)


@dataclass(frozen=True)
class Terms:
    """The terms of a rule beside its limits.

    ``shadow``: its limits are measured but not enforced. ``proposed``: shadow limits beside the enforced ones, by kind.
    ``burst_ms``: how much of a limit may be used at once, as time. ``max_delay_ms``: the longest throttle. None: the
    default. ``shared``: all client-ids of a prefix share one counter; otherwise each has its own, with the full quota.
    ``of_cluster``: one counter for all brokers together; otherwise one at each.
    """

    shadow: bool = False
    proposed: Mapping[QuotaKind, float] = field(default_factory=dict)
    burst_ms: int | None = None
    max_delay_ms: int | None = None
    shared: bool = True
    of_cluster: bool = False
    only: tuple[QuotaKind, ...] | None = None


class KindTerms(NamedTuple):
    """The terms of a rule for one kind."""

    shadow: bool = False
    proposed: float | None = None
    burst_ms: int | None = None
    max_delay_ms: int | None = None
    shared: bool = True
    of_cluster: bool = False


PLAIN: Final = KindTerms()
_NO_TERMS: Final = Terms()


@dataclass(frozen=True)
class Policy:
    """All configured limits, in the units of their kind (bytes/s, percent of one thread, mutations/s, connections/s).

    Quotas, one of which wins per client and kind; and caps (``Entity.cap``), which all apply in addition. Methods with
    ``cap`` return one or the other.

    Raises ValueError if an entity has a kind that Kafka does not know for it, or terms without a limit.
    """

    limits: Mapping[Entity, Mapping[QuotaKind, float]] = field(default_factory=dict)
    terms: Mapping[Entity, Terms] = field(default_factory=dict)
    """The terms of rules that have any."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The users of each group. A user is in at most one."""
    has_scopes: bool = field(init=False, repr=False, compare=False)
    """Some limits are of the whole cluster."""
    group_of: dict[str, str] = field(init=False, repr=False, compare=False)
    """The group of each user. Read-only."""
    _prefixes: dict[_Book, set[int]] = field(init=False, repr=False, compare=False)
    _grouped: set[_Book] = field(init=False, repr=False, compare=False)
    _terms: dict[_Book, dict[Key, KindTerms]] = field(init=False, repr=False, compare=False)
    _tables: dict[_Book, dict[Key, float]] = field(init=False, repr=False, compare=False)
    _clients: dict[tuple[Key, bool], Entity] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Indexed here and not in Engine.apply, which must not block the event loop.
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
        object.__setattr__(self, "has_scopes", any(each.of_cluster for each in self.terms.values()))
        object.__setattr__(self, "_prefixes", prefixes)
        object.__setattr__(self, "_grouped", grouped)
        object.__setattr__(self, "_terms", self._terms_by_kind())
        object.__setattr__(self, "_tables", tables)
        object.__setattr__(self, "_clients", clients)

    def table(self, kind: QuotaKind, *, cap: bool = False) -> dict[Key, float]:
        """Return the limits of one kind. Read-only."""
        return self._tables[kind, cap]

    def has(self, kind: QuotaKind) -> bool:
        """Whether any quota or cap of the kind is configured."""
        return bool(self._tables[kind, False] or self._tables[kind, True])

    def prefix_lengths(self, kind: QuotaKind, *, cap: bool = False) -> tuple[int, ...]:
        """Return the lengths of the prefixes that have limits of the kind, in characters, the longest first."""
        return tuple(sorted(self._prefixes.get((kind, cap), ()), reverse=True))

    def groups_of(self, kind: QuotaKind, *, cap: bool = False) -> dict[str, str]:
        """Return the group of each user; empty if no limit of the kind is for groups. Read-only."""
        return self.group_of if (kind, cap) in self._grouped else {}

    def _groups_by_user(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for group, users in self.groups.items():
            for user in map(configured_as, users):
                if found.setdefault(user, group) != group:
                    raise ValueError(f"{user!r} is in the groups {found[user]!r} and {group!r}")
        return found

    def terms_of(self, kind: QuotaKind, *, cap: bool = False) -> dict[Key, KindTerms]:
        """Return the terms of the limits of one kind that have any. Read-only."""
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
                    terms.shadow,
                    terms.proposed.get(kind),
                    terms.burst_ms,
                    terms.max_delay_ms,
                    terms.shared,
                    terms.of_cluster,
                )
        return found

    def client(self, key: Key, *, cap: bool = False) -> Entity:
        """Return the entity that is configured as ``key``."""
        return self._clients[key, cap]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The number of limits (one entity under one kind) that a new policy added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


def change(old: "Policy", new: "Policy") -> PolicyChange:
    """Return how many limits differ, or have other terms."""
    numbers = [0, 0, 0]
    for kind, cap in _BOOKS:
        added, changed, removed = differences(old.table(kind, cap=cap), new.table(kind, cap=cap))
        changed |= other_terms(old.terms_of(kind, cap=cap), new.terms_of(kind, cap=cap)) - added - removed
        numbers = [number + len(keys) for number, keys in zip(numbers, (added, changed, removed), strict=True)]
    return PolicyChange(*numbers)


def differences(old: dict[Key, float], new: dict[Key, float]) -> tuple[set[Key], set[Key], set[Key]]:
    """Return the keys (added, changed, removed)."""
    if not old:
        return set(new), set(), set()
    touched = {key for key, limit in new.items() if old.get(key) != limit}
    added = touched - old.keys()
    removed = set() if len(old) + len(added) == len(new) else old.keys() - new.keys()
    return added, touched - added, removed


def other_terms(old: dict[Key, KindTerms], new: dict[Key, KindTerms]) -> set[Key]:
    """Return the keys whose terms differ."""
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)} if old or new else set()
