"""The quota policy: all configured limits, the entities they are for, and their terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from quotas.entities import Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.names import configured_as

MOST_CAPS: Final = 4
"""The most caps of one kind that may apply to one client: each is charged with every request."""

Key = tuple[Name, Name]
"""(user, client-id) as configured; (ip, None) for kinds of ips."""

BOOKS: Final = tuple((kind, cap) for kind in QuotaKind for cap in (False, True))
"""(kind, cap): the quotas of one kind, or its caps if True."""
LEAST_LIMIT: Final = 1e-9
"""The least limit above 0; lower ones are raised to it. A quota file accepts none lower; ZooKeeper holds doubles, and
division by the smallest ones overflows.
"""


@dataclass(frozen=True)
class Terms:
    """The terms of a rule beside its limits.

    ``shadow``: its limits are measured but not enforced. ``proposed``: shadow limits beside the enforced ones, by kind.
    ``burst_ms``: how much of a limit may be used at once, as time. ``max_delay_ms``: the longest throttle. None: the
    default. ``shared``: all client-ids of a prefix share one counter; otherwise each has its own, with the full quota.
    ``of_cluster``: one counter for all brokers together; otherwise one at each. ``only``: the kinds that these terms
    are for, if not all.
    """

    shadow: bool = False
    proposed: Mapping[QuotaKind, float] = field(default_factory=dict)
    burst_ms: int | None = None
    max_delay_ms: int | None = None
    shared: bool = True
    of_cluster: bool = False
    only: tuple[QuotaKind, ...] | None = None


PLAIN: Final = Terms()


@dataclass(slots=True)
class Book:
    """The quotas of one kind, one of which wins per client; or its caps, which all apply. Read-only."""

    limits: dict[Key, float] = field(default_factory=dict)
    entities: dict[Key, Entity] = field(default_factory=dict)
    terms: dict[Key, Terms] = field(default_factory=dict)
    """The terms of limits that have any."""
    lengths: tuple[int, ...] = ()
    """The lengths of the prefixes that have limits, in characters, the longest first."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    """The group of each user; empty if no limit is for groups."""

    def terms_of(self, key: Key | None) -> Terms:
        return PLAIN if key is None else self.terms.get(key, PLAIN)

    def differences(self, new: "Book") -> tuple[set[Key], set[Key], set[Key]]:
        """Return the keys (added, changed, removed) of limits, or of their terms."""
        touched = {key for key, limit in new.limits.items() if self.limits.get(key) != limit}
        touched |= {key for key in self.terms.keys() | new.terms.keys() if self.terms.get(key) != new.terms.get(key)}
        added = touched - self.limits.keys()
        is_smaller = len(self.limits) + len(added) > len(new.limits)
        removed = self.limits.keys() - new.limits.keys() if is_smaller else set[Key]()
        return added, touched - added - removed, removed


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
    group_of: dict[str, str] = field(init=False, repr=False, compare=False)
    """The group of each user. Read-only."""
    _books: dict[tuple[QuotaKind, bool], Book] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Indexed here and not in Engine.apply, which must not block the event loop.
        books = {book: Book() for book in BOOKS}
        group_of = self._groups_by_user()
        for entity, limits in self.limits.items():
            key = (entity.user, entity.client_id) if entity.ip is None else (entity.ip, None)
            if isinstance(entity.user, Group) and entity.user.name not in self.groups:
                raise ValueError(f"no group is called {entity.user.name!r}")
            for kind, limit in limits.items():
                if kind not in entity.kinds:
                    raise ValueError(f"{kind} is not a quota of {entity.describe()}")
                book = books[kind, entity.cap]
                book.limits[key] = max(float(limit), LEAST_LIMIT) if limit else 0.0
                book.entities[key] = entity
                if isinstance(entity.client_id, Prefix) and len(entity.client_id.text) not in book.lengths:
                    book.lengths = tuple(sorted((*book.lengths, len(entity.client_id.text)), reverse=True))
                if isinstance(entity.user, Group):
                    book.group_of = group_of
        self._add_terms(books)
        object.__setattr__(self, "group_of", group_of)
        object.__setattr__(self, "_books", books)

    def book(self, kind: QuotaKind, *, cap: bool = False) -> Book:
        """Return the quotas of one kind, or its caps."""
        return self._books[kind, cap]

    def has(self, kind: QuotaKind) -> bool:
        """Whether any quota or cap of the kind is configured."""
        return any(self._books[kind, cap].limits for cap in (False, True))

    def _groups_by_user(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for group, users in self.groups.items():
            for user in map(configured_as, users):
                if found.setdefault(user, group) != group:
                    raise ValueError(f"{user!r} is in the groups {found[user]!r} and {group!r}")
        return found

    def _add_terms(self, books: Mapping[tuple[QuotaKind, bool], Book]) -> None:
        for entity, terms in self.terms.items():
            limits = self.limits.get(entity, {})
            if entity.ip is not None or (terms.shadow and terms.proposed) or terms.proposed.keys() - limits.keys():
                raise ValueError(f"terms of {entity.describe()} that are about no limit in force of a client")
            for kind in limits:
                if terms != PLAIN and (terms.only is None or kind in terms.only):
                    proposed = {kind: terms.proposed[kind]} if kind in terms.proposed else {}
                    of_kind = replace(terms, proposed=proposed, only=None)
                    books[kind, entity.cap].terms[entity.user, entity.client_id] = of_kind


class PolicyChange(NamedTuple):
    """The number of limits (one entity under one kind) that a new policy added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


def change(old: "Policy", new: "Policy") -> PolicyChange:
    """Return how many limits differ, or have other terms."""
    books = [old.book(kind, cap=cap).differences(new.book(kind, cap=cap)) for kind, cap in BOOKS]
    return PolicyChange(*[sum(map(len, keys)) for keys in zip(*books, strict=True)])
