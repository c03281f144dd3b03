"""Who may use how much, and who has used it: the counters of one worker under the policy in force."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from quotas.bound import Bound
from quotas.counted import CAP, Counted, CounterKey, CounterState, Gone
from quotas.counters import Counters
from quotas.entities import Entity
from quotas.kinds import Law, QuotaKind, Whose
from quotas.names import Room
from quotas.policy import Policy, PolicyChange, differences, other_terms
from quotas.precedence import Walk
from quotas.rate import Window

__all__ = ["CLIENT_KINDS", "Bound", "Counted", "CounterKey", "CounterState", "Engine", "Gone", "Window"]

CLIENT_KINDS: Final = tuple(kind for kind in QuotaKind if kind.row.whose is Whose.CLIENT)
"""The kinds that are for users and client-ids, which is what the engine keeps counters of."""

MAX_NAMES_BYTES: Final = 16 * 2**20
"""What the names of all counters may take in memory: of 150,000 counters, or of 15,000 with the longest names."""


class Engine:
    """Counters for every kind in CLIENT_KINDS, under a policy that may be replaced at any time.

    ``generation`` rises whenever a Bound that a session holds may no longer be the right one: compare before use,
    and resolve again. One that is charged nevertheless loses nothing.

    ``controller_window`` is that of token buckets. ``max_names_bytes`` is what the names of all counters may take in
    memory.
    """

    __slots__ = ("_all", "_caps", "_counters", "_named", "_policy", "_unseen", "generation", "has_caps")

    def __init__(
        self,
        policy: Policy,
        window: Window = Window(),  # noqa: B008  frozen
        *,
        controller_window: Window = Window(),  # noqa: B008  likewise
        max_names_bytes: int = MAX_NAMES_BYTES,
    ) -> None:
        self.generation = 0
        self._policy = Policy()
        self._named: set[str] = set()
        self._unseen: set[str] = set()
        names = Room(max_names_bytes)
        windows = {kind: controller_window if kind.row.law is Law.TOKEN_BUCKET else window for kind in CLIENT_KINDS}
        self._counters = {kind: Counters(kind, each, names) for kind, each in windows.items()}
        self._caps = {kind: Counters(kind, each, names, cap=True) for kind, each in windows.items()}
        self._all = (*self._counters.values(), *self._caps.values())
        self.has_caps = False
        """Some clients are charged to more than one counter of a kind."""
        self.apply(policy, 0)

    def resolve(self, user: str, client_id: str, kind: QuotaKind, broker: int) -> Bound:
        """Return the counter that a client is measured by on one broker (its node id, -1: not known yet).

        A null client-id is "". Raises KeyError for a kind that is not in CLIENT_KINDS.
        """
        self._unseen.discard(user)
        return self._counters[kind].resolve(user, client_id, broker)

    def resolve_caps(self, user: str, client_id: str, kind: QuotaKind, broker: int) -> tuple[Bound, ...]:
        """Return the counters that a client is measured by besides, those of its caps. Else as ``resolve``."""
        return self._caps[kind].resolve_caps(user, client_id, broker)

    def names(self, user: str) -> bool:
        """Whether a quota is for ``user`` by name, or for a group that lists it."""
        return user in self._named

    def unseen(self) -> list[str]:
        """Return the users whom a quota is for by name, or by a group, and whom no client has been: most likely
        clients are named in another way than the quotas have it. Since the quota is there, that is.
        """
        return sorted(self._unseen)

    def unlimited(self, kind: QuotaKind) -> Bound:
        """Return what a client is measured by that no quota concerns: nothing is kept."""
        return self._counters[kind].inert

    def limit_of(self, user: str, client_id: str, kind: QuotaKind) -> tuple[float | None, Entity | None]:
        """Return the limit that holds for a client and the entity it is configured for; (None, None) if none does.

        A look only: no counter comes of it. Raises KeyError for a kind that is not in CLIENT_KINDS.
        """
        return self._counters[kind].limit_of(user, client_id)

    def caps_of(self, user: str, client_id: str, kind: QuotaKind) -> list[tuple[float, Entity]]:
        """Return the caps in force that hold for a client besides, the narrowest first. Else as ``limit_of``."""
        return self._caps[kind].caps_of(user, client_id) if self.has_caps else []

    def is_shared(self, entity: Entity) -> bool:
        """Whether all clients of a rule that is for a prefix have one counter together."""
        terms = self._policy.terms.get(entity)
        return terms is None or terms.shared

    def shadow_of(self, user: str, client_id: str, kind: QuotaKind) -> float | None:
        """Return the limit that is measured for a client and holds nobody; None where there is none. Else as
        ``limit_of``.
        """
        return self._counters[kind].shadow_of(user, client_id)

    def explain(self, user: str, client_id: str, kind: QuotaKind) -> Walk:
        """Return which limits hold for a client and why: every level that was looked at, in order, and its caps. Else
        as ``limit_of``.
        """
        caps = self._caps[kind].rules.levels(user, client_id)
        return self._counters[kind].rules.walk(user, client_id)._replace(caps=caps)

    def apply(self, policy: Policy, now_ms: int) -> PolicyChange:
        """Put another policy in force, for existing counters at once and with all that they have recorded."""
        self.expire(now_ms)
        added_total = changed_total = removed_total = 0
        regrouped = self._policy.group_of != policy.group_of
        for kind, cap in product(QuotaKind, (False, True)):
            before = self._policy
            added, changed, removed = differences(before.table(kind, cap=cap), policy.table(kind, cap=cap))
            changed |= other_terms(before.terms_of(kind, cap=cap), policy.terms_of(kind, cap=cap)) - added - removed
            touched = added | changed | removed
            counters = self._caps if cap else self._counters
            if (touched or regrouped) and kind in counters:
                counters[kind].apply(policy, touched, now_ms)
            added_total += len(added)
            changed_total += len(changed)
            removed_total += len(removed)
        self._policy = policy
        named = {each.user for each in policy.limits if isinstance(each.user, str)} | policy.group_of.keys()
        self._unseen = {user for user in named if user in self._unseen or user not in self._named}
        self._named = named
        self.has_caps = any(not counters.rules.is_empty for counters in self._caps.values())
        change = PolicyChange(added_total, changed_total, removed_total)
        if regrouped or change != PolicyChange():
            # Another level may win now; and a bound that a session holds, but that was dropped, has not followed.
            self.generation += 1
        return change

    def rejudge(self, now_ms: int) -> None:
        """Take the limits in force for what is in the windows alone, and have every session look anew: whether quotas
        are enforced has changed, and what nobody was held for is owed no longer than a broker would remember it.
        """
        for counters in self._all:
            counters.rejudge(now_ms)
        self.generation += 1

    def usage(self, now_ms: int) -> list[CounterState]:
        """Return what every counter with a limit stands at. Plain data, and a look only: no sample moves."""
        return [usage for counters in self._all for usage in counters.usage(now_ms)]

    def take(self, now_ms: int) -> Iterator[tuple[CounterState, Counted]]:
        """Yield what every counter with a limit stands at, and what it has counted since it was taken last.

        It may be left off in between for as long as one likes: what comes or goes meanwhile is counted once, too.
        """
        for counters in self._all:
            yield from counters.take(now_ms)

    def take_gone(self) -> list[Gone]:
        """Return what counters have counted since they were taken last that are gone by now, or have lost their limit.

        Of very many the last are one of user and client-id FOLDED.
        """
        return [gone for counters in self._all for gone in counters.take_gone()]

    def elsewhere(self, numbers: Mapping[CounterKey, float]) -> None:
        """Replace what other workers and instances used, per counter, in its current window.

        It is added to the local sum whenever a rate is evaluated and never becomes a local sample, so that it
        cannot be counted twice. In the counter's unit times seconds (bytes, percent-seconds).
        """
        for counters in self._all:
            of_these = (counters.rules.kind, counters.rules.cap)
            counters.elsewhere(
                {key: used for key, used in numbers.items() if (key.kind, bool(key.several & CAP)) == of_these}
            )

    def expire(self, now_ms: int) -> int:
        """Drop the counters that hold nothing any more and return how many: N windows after their last event.

        Each counter is looked at once when it is new and then when it may be idle, never in between, so this costs
        what has changed and not what exists. ``generation`` rises only if sessions are to learn of a bound that
        replaced theirs: while nobody else came, theirs goes on, with its totals, after any pause.
        """
        dropped = 0
        for counters in self._all:
            dropped += counters.expire(now_ms)
            if counters.superseded:
                counters.superseded = False
                self.generation += 1
        return dropped
