"""The rules of one quota kind in force: which of them apply to a client, and which counter it uses."""

from quotas.counted import CounterKey
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import PLAIN, Book, Key, KindTerms, Policy
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

    __slots__ = ("_book", "_levels", "_policy", "cap", "has_scopes", "kind")

    def __init__(self, kind: QuotaKind, *, cap: bool) -> None:
        self.kind = kind
        self.cap = cap
        self._policy = Policy()
        self._book = Book()
        self._levels = 0
        self.has_scopes = False
        """Some limits are of the whole cluster."""

    def put_in_force(self, policy: Policy, touched: set[Key]) -> None:
        """Use ``policy``; ``touched`` are the rules that differ from before."""
        self._policy = policy
        self._book = policy.book(self.kind, cap=self.cap)
        self.has_scopes = any(terms.of_cluster for terms in self._book.terms.values())
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
        return not self._book.limits

    @property
    def is_plain(self) -> bool:
        """Whether no rule has terms."""
        return not self._book.terms

    def counter(self, user: str, client_id: str) -> Counter:
        """Return the counter of a client under the quota that wins, or would."""
        book = self._book
        if book.lengths or book.group_of:
            return self.walk(user, client_id).counter
        return Counter(*tags_of(book.limits, self._levels, user, client_id), 0)

    def winner(self, user: str, client_id: str) -> Key | None:
        """Return the quota that wins for a client."""
        book = self._book
        if book.lengths or book.group_of:
            return self.walk(user, client_id).winner
        return limiting_key(book.limits, *tags_of(book.limits, self._levels, user, client_id))

    def caps(self, user: str, client_id: str) -> list[tuple[Key, Counter]]:
        """Return the caps that apply to a client, the narrowest first, and their counters."""
        return caps_of(self._book, user, client_id)

    def walk(self, user: str, client_id: str) -> Walk:
        """Return the quota that wins for a client, and how it was found."""
        return walk(self._book, self._levels, user, client_id)

    def levels(self, user: str, client_id: str) -> tuple[Level, ...]:
        """Return the caps that apply to a client, with their limits."""
        return tuple(Level(key, self._book.limits[key]) for key, _ in self.caps(user, client_id))

    def limiting(self, key: CounterKey) -> Key | None:
        """Return the rule that applies to a counter."""
        if self.cap or self._book.lengths or self._book.group_of or key.several:
            return key_of(self._book, Counter(key.user, key.client_id, key.several))
        return limiting_key(self._book.limits, key.user, key.client_id)

    def limit(self, key: Key) -> float:
        """Return the limit of a rule, enforced or in shadow mode."""
        return self._book.limits[key]

    def terms(self, key: Key | None) -> KindTerms:
        """Return the terms of a rule."""
        return PLAIN if key is None else self._book.terms.get(key, PLAIN)

    def entity(self, key: Key) -> Entity:
        """Return the entity of a rule."""
        return self._policy.client(key, cap=self.cap)
