"""The rules of one quota kind in force: which of them apply to a client, and which counter it uses."""

from quotas.counted import CounterKey
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import PLAIN, Key, KindTerms, Policy
from quotas.precedence import (
    Counter,
    Level,
    Walk,
    caps_of,
    key_of,
    level_of,
    limiting_key,
    tags_of,
    walk,
)


class Rulebook:
    """The quotas of one kind, one of which wins per client; or its caps, all of which apply."""

    __slots__ = ("_group_of", "_lengths", "_levels", "_limits", "_policy", "_terms", "cap", "has_scopes", "kind")

    def __init__(self, kind: QuotaKind, *, cap: bool) -> None:
        self.kind = kind
        self.cap = cap
        self._policy = Policy()
        self._limits: dict[Key, float] = {}
        self._terms: dict[Key, KindTerms] = {}
        self._lengths: tuple[int, ...] = ()
        self._group_of: dict[str, str] = {}
        self._levels = 0
        self.has_scopes = False
        """Some limits are of the whole cluster."""

    def put_in_force(self, policy: Policy, touched: set[Key]) -> None:
        """Use ``policy``; ``touched`` are the rules that differ from before."""
        self._policy = policy
        self._limits = policy.table(self.kind, cap=self.cap)
        self._terms = policy.terms_of(self.kind, cap=self.cap)
        self.has_scopes = any(terms.of_cluster for terms in self._terms.values())
        self._lengths = policy.prefix_lengths(self.kind, cap=self.cap)
        self._group_of = policy.groups_of(self.kind, cap=self.cap)
        # A removal sets the bit of its level too, and nothing ever clears one (QuotaTypes).
        for key in touched:
            self._levels |= level_of(key)

    @property
    def is_in_use(self) -> bool:
        """Whether any rule ever existed: from then on every client is measured."""
        return self._levels != 0

    @property
    def is_empty(self) -> bool:
        """Whether no rule exists now."""
        return not self._limits

    @property
    def is_plain(self) -> bool:
        """Whether no rule has terms."""
        return not self._terms

    def counter(self, user: str, client_id: str) -> Counter:
        """Return the counter of a client under the quota that wins, or would."""
        if self._lengths or self._group_of:
            return self.walk(user, client_id).counter
        return Counter(*tags_of(self._limits, self._levels, user, client_id), 0)

    def caps(self, user: str, client_id: str) -> list[tuple[Key, Counter]]:
        """Return the caps that apply to a client, the narrowest first, and their counters."""
        return caps_of(self._limits, self._terms, self._lengths, self._group_of.get(user), user, client_id)

    def walk(self, user: str, client_id: str) -> Walk:
        """Return the quota that wins for a client, and how it was found."""
        group = self._group_of.get(user)
        return walk(self._limits, self._terms, self._levels, self._lengths, group, user, client_id)

    def levels(self, user: str, client_id: str) -> tuple[Level, ...]:
        """Return the caps that apply to a client, with their limits."""
        return tuple(Level(key, self._limits[key]) for key, _ in self.caps(user, client_id))

    def winner(self, user: str, client_id: str) -> Key | None:
        """Return the quota that wins for a client."""
        if self._lengths or self._group_of:
            return self.walk(user, client_id).winner
        return limiting_key(self._limits, *tags_of(self._limits, self._levels, user, client_id))

    def limiting(self, key: CounterKey) -> Key | None:
        """Return the rule that applies to a counter."""
        if self.cap or self._lengths or self._group_of or key.several:
            return key_of(self._limits, self._terms, self._lengths, Counter(key.user, key.client_id, key.several))
        return limiting_key(self._limits, key.user, key.client_id)

    def limit(self, key: Key) -> float:
        """Return the limit of a rule, enforced or in shadow mode."""
        return self._limits[key]

    def terms(self, key: Key | None) -> KindTerms:
        """Return the terms of a rule."""
        return PLAIN if key is None else self._terms.get(key, PLAIN)

    def entity(self, key: Key) -> Entity:
        """Return the entity of a rule."""
        return self._policy.client(key, cap=self.cap)
