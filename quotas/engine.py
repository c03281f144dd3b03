"""Who may use how much, and who has used it: the counters of one worker under the policy in force."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from quotas.bound import Bound, Inert
from quotas.counted import CLUSTER, FOLDED, PREFIX, Counted, CounterKey, CounterState, Gone
from quotas.entities import Entity
from quotas.kinds import Law, QuotaKind, Whose
from quotas.mutations import TokenBound
from quotas.names import OTHER, Room
from quotas.policy import PLAIN, Key, Policy, PolicyChange, differences, other_terms
from quotas.precedence import Counter, Walk, key_of, level_of, limiting_key, tags_of, walk
from quotas.rate import Window

__all__ = ["CLIENT_KINDS", "Bound", "Counted", "CounterKey", "CounterState", "Engine", "Gone", "Window"]

CLIENT_KINDS: Final = tuple(kind for kind in QuotaKind if kind.row.whose is Whose.CLIENT)
"""The kinds that are for users and client-ids, which is what the engine keeps counters of."""

MAX_NAMES_BYTES: Final = 16 * 2**20
"""What the names of all counters may take in memory: of 150,000 counters, or of 15,000 with the longest names."""

MAX_GONE = 10_000
"""Counters of one kind that are gone, and whose last counts nobody has taken yet, by name; the others are summed up."""


class Counters:
    """The counters of one quota kind (Kafka: ClientQuotaManager)."""

    __slots__ = (
        "_bounds",
        "_brokers",
        "_cap_ms",
        "_crowded",
        "_elsewhere",
        "_gone",
        "_group_of",
        "_kind",
        "_lengths",
        "_levels",
        "_limits",
        "_names",
        "_newcomers",
        "_policy",
        "_terms",
        "_watched",
        "_window",
        "inert",
        "superseded",
    )

    def __init__(self, kind: QuotaKind, window: Window, names: Room) -> None:
        self._kind = kind
        self._names = names
        self._crowded = False
        """Clients share a counter because there was no room for their names."""
        self._window = window
        self._cap_ms = window.size_ms if kind.row.capped else None
        self._policy = Policy()
        self._limits = self._policy.table(kind)
        self._terms = self._policy.terms_of(kind)
        self._lengths = self._policy.prefix_lengths(kind)
        self._group_of = self._policy.groups_of(kind)
        self._levels = 0
        self._bounds: dict[CounterKey, Bound] = {}
        self._brokers: set[int] = set()
        self._newcomers: list[Bound] = []
        self._watched: dict[int, list[Bound]] = {}
        """The other bounds, by the window (of Window.size_ms since 0) at whose start they may be idle."""
        self._elsewhere: dict[CounterKey, float] = {}
        self._gone: dict[CounterKey, Gone] = {}
        self.superseded = False
        """A session has charged a bound whose place another one has taken, or shares one without need."""
        self.inert = Inert(CounterKey(kind, "", "", -1), window, None, self)

    def resolve(self, user: str, client_id: str, broker: int) -> Bound:
        if not self._levels:
            return self.inert
        if self._kind.row.of_cluster:
            broker = CLUSTER
        if self._lengths or self._group_of:
            counter = self.walk(user, client_id).counter
            key = CounterKey(self._kind, counter.user, counter.client_id, broker, counter.several)
        else:
            user_tag, client_tag = tags_of(self._limits, self._levels, user, client_id)
            key = CounterKey(self._kind, user_tag, client_tag, broker)
        return self._bounds.get(key) or self._make(key)

    def walk(self, user: str, client_id: str) -> Walk:
        group = self._group_of.get(user)
        return walk(self._limits, self._terms, self._levels, self._lengths, group, user, client_id)

    def _winner(self, user: str, client_id: str) -> Key | None:
        if self._lengths or self._group_of:
            return self.walk(user, client_id).winner
        return limiting_key(self._limits, *tags_of(self._limits, self._levels, user, client_id))

    def _limiting(self, key: CounterKey) -> Key | None:
        if self._lengths or self._group_of or key.several:
            return key_of(self._limits, self._terms, self._lengths, Counter(key.user, key.client_id, key.several))
        return limiting_key(self._limits, key.user, key.client_id)

    def _make(self, key: CounterKey) -> Bound:
        """Return a new counter; without room for its names that of all such clients of its user, unless a quota is
        configured for just this client-id.
        """
        if self._names.full and key.client_id and not key.several & PREFIX:
            limiting = self._limiting(key)
            if limiting is None or not isinstance(limiting[1], str):
                key = key._replace(client_id=OTHER)
                self._crowded = True
        return self._bounds.get(key) or self.enter(self._new(key))

    def _new(self, key: CounterKey) -> Bound:
        if self._kind.row.law is Law.TOKEN_BUCKET:
            return TokenBound(key, self._window, self)
        return Bound(key, self._window, self._cap_ms, self)

    def limit_of(self, user: str, client_id: str) -> tuple[float | None, Entity | None]:
        if not self._levels:
            return None, None
        key = self._winner(user, client_id)
        if key is None or self._terms.get(key, PLAIN).shadow:
            return None, None
        return self._limits[key], self._policy.client(key)

    def shadow_of(self, user: str, client_id: str) -> float | None:
        if not self._terms:
            return None
        key = self._winner(user, client_id)
        terms = PLAIN if key is None else self._terms.get(key, PLAIN)
        return self._limits[key] if key is not None and terms.shadow else terms.proposed

    def enter(self, bound: Bound) -> Bound:
        """Take ``bound`` in as the one of its key, or return the one that already is."""
        key = bound.key
        live = self._bounds.setdefault(key, bound)
        if live is not bound:
            self.superseded = True
            return live
        self._names.take(key.user, key.client_id)
        self._brokers.add(key.broker)
        self._newcomers.append(bound)
        bound.set_elsewhere(self._elsewhere.get(key, 0.0))
        self._limit(bound)
        bound.entered()
        return bound

    def apply(self, policy: Policy, touched: set[Key], now_ms: int) -> None:
        self._policy = policy
        self._limits = policy.table(self._kind)
        self._terms = policy.terms_of(self._kind)
        self._lengths = policy.prefix_lengths(self._kind)
        self._group_of = policy.groups_of(self._kind)
        # A removal sets the bit of its level too, and nothing ever clears one (QuotaTypes).
        for key in touched:
            self._levels |= level_of(key)
        for bound in self._concerned(touched):
            if self._limit(bound):
                bound.rejudge(now_ms)

    def rejudge(self, now_ms: int) -> None:
        for bound in self._bounds.values():
            bound.forgive(now_ms)

    def usage(self, now_ms: int) -> Iterator[CounterState]:
        for bound in self._bounds.values():
            usage = bound.usage(now_ms)
            if usage is not None:
                yield usage

    def take(self, now_ms: int) -> Iterator[tuple[CounterState, Counted]]:
        for bound in [bound for bound in self._bounds.values() if bound.rule is not None]:
            usage = bound.usage(now_ms)
            if usage is not None:  # its limit may have gone meanwhile
                yield usage, bound.take_counted()

    def take_gone(self) -> Iterable[Gone]:
        gone, self._gone = self._gone, {}
        return gone.values()

    def _let_go(self, bound: Bound) -> None:
        """Keep what a counter has counted that goes now, or has no limit any more."""
        counted = bound.take_counted()
        if bound.rule is None or not (counted.charged or counted.throttled):
            return
        key = bound.key
        if key not in self._gone and len(self._gone) >= MAX_GONE:
            key = key._replace(user=FOLDED, client_id=FOLDED)
        before = self._gone.get(key)
        self._gone[key] = Gone(key, bound.rule, counted if before is None else before.counted.plus(counted))

    def elsewhere(self, numbers: dict[CounterKey, float]) -> None:
        for key in self._elsewhere.keys() | numbers.keys():
            bound = self._bounds.get(key)
            if bound is not None:
                bound.set_elsewhere(numbers.get(key, 0.0))
        self._elsewhere = numbers

    def expire(self, now_ms: int) -> int:
        for bound in self._newcomers:
            # One that was only looked up so far is about to be charged: it is given a window's time.
            self._watch(bound, (now_ms if bound.last_ms is None else bound.last_ms) + bound.window.keep_ms)
        self._newcomers = []
        dropped = 0
        for number in sorted(number for number in self._watched if number <= now_ms // self._window.size_ms):
            for bound in self._watched.pop(number):
                last_ms = bound.last_ms
                keep_ms = bound.window.keep_ms
                busy_ms = bound.busy_ms(now_ms)
                if busy_ms:
                    self._watch(bound, now_ms + busy_ms)
                elif last_ms is None or last_ms + keep_ms <= now_ms:
                    del self._bounds[bound.key]
                    self._names.give_back(bound.user, bound.client_id)
                    self._let_go(bound)
                    bound.dropped()
                    dropped += 1
                else:
                    self._watch(bound, last_ms + keep_ms)
        if self._crowded and not self._names.full:
            self._crowded = False
            self.superseded = True  # who shares a counter may have one of their own now
        return dropped

    def _watch(self, bound: Bound, idle_ms: int) -> None:
        """Look at ``bound`` again in the first window that begins not before ``idle_ms``."""
        self._watched.setdefault(-(-idle_ms // self._window.size_ms), []).append(bound)

    def _concerned(self, touched: set[Key]) -> Iterator[Bound]:
        """Yield the bounds whose limit may have changed: those with just these tags, or all where a key is not for one
        name.
        """
        if not self._bounds:
            return
        if any(not isinstance(part, str | None) for key in touched for part in key):
            yield from self._bounds.values()
            return
        for user, client_id in touched:
            for broker in self._brokers:
                bound = self._bounds.get(CounterKey(self._kind, str(user or ""), str(client_id or ""), broker))
                if bound is not None:
                    yield bound

    def _limit(self, bound: Bound) -> bool:
        """Set the limit that holds for ``bound``, and its terms; returns whether another holds than before."""
        key = self._limiting(bound.key)
        limit: float | None = None if key is None else self._limits[key]
        terms = PLAIN if key is None else self._terms.get(key, PLAIN)
        if (key is None) is not (bound.rule is None):
            self._let_go(bound)  # what is used without a quota is not counted under one
        bound.rule = None if key is None else self._policy.client(key)
        bound.max_delay_ms = terms.max_delay_ms
        bound.shadow_limit = terms.proposed
        if terms.shadow:
            bound.shadow_limit = limit  # and not as one assignment of two: docs/decisions/0020
            limit = None
        before = bound.window
        if terms.burst_ms is None or self._kind.row.law is not Law.SAMPLED_RATE:
            bound.set_window(self._window)
        else:
            bound.set_window(self._window.of_burst(terms.burst_ms))
        if limit == bound.limit:
            return bound.window != before
        bound.set_limit(limit)
        return True


class Engine:
    """Counters for every kind in CLIENT_KINDS, under a policy that may be replaced at any time.

    ``generation`` rises whenever a Bound that a session holds may no longer be the right one: compare before use,
    and resolve again. One that is charged nevertheless loses nothing.

    ``controller_window`` is that of token buckets. ``max_names_bytes`` is what the names of all counters may take in
    memory.
    """

    __slots__ = ("_counters", "_policy", "generation")

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
        names = Room(max_names_bytes)
        self._counters = {
            kind: Counters(kind, controller_window if kind.row.law is Law.TOKEN_BUCKET else window, names)
            for kind in CLIENT_KINDS
        }
        self.apply(policy, 0)

    def resolve(self, user: str, client_id: str, kind: QuotaKind, broker: int) -> Bound:
        """Return the counter that a client is measured by on one broker (its node id, -1: not known yet).

        A null client-id is "". Raises KeyError for a kind that is not in CLIENT_KINDS.
        """
        return self._counters[kind].resolve(user, client_id, broker)

    def unlimited(self, kind: QuotaKind) -> Bound:
        """Return what a client is measured by that no quota concerns: nothing is kept."""
        return self._counters[kind].inert

    def limit_of(self, user: str, client_id: str, kind: QuotaKind) -> tuple[float | None, Entity | None]:
        """Return the limit that holds for a client and the entity it is configured for; (None, None) if none does.

        A look only: no counter comes of it. Raises KeyError for a kind that is not in CLIENT_KINDS.
        """
        return self._counters[kind].limit_of(user, client_id)

    def shadow_of(self, user: str, client_id: str, kind: QuotaKind) -> float | None:
        """Return the limit that is measured for a client and holds nobody; None where there is none. Else as
        ``limit_of``.
        """
        return self._counters[kind].shadow_of(user, client_id)

    def explain(self, user: str, client_id: str, kind: QuotaKind) -> Walk:
        """Return which limit holds for a client and why: every level that was looked at, in order. Else as
        ``limit_of``.
        """
        return self._counters[kind].walk(user, client_id)

    def apply(self, policy: Policy, now_ms: int) -> PolicyChange:
        """Put another policy in force, for existing counters at once and with all that they have recorded."""
        self.expire(now_ms)
        added_total = changed_total = removed_total = 0
        regrouped = self._policy.group_of != policy.group_of
        for kind in QuotaKind:
            added, changed, removed = differences(self._policy.table(kind), policy.table(kind))
            changed |= other_terms(self._policy.terms_of(kind), policy.terms_of(kind)) - added - removed
            touched = added | changed | removed
            if (touched or regrouped) and kind in self._counters:
                self._counters[kind].apply(policy, touched, now_ms)
            added_total += len(added)
            changed_total += len(changed)
            removed_total += len(removed)
        self._policy = policy
        change = PolicyChange(added_total, changed_total, removed_total)
        if regrouped or change != PolicyChange():
            # Another level may win now; and a bound that a session holds, but that was dropped, has not followed.
            self.generation += 1
        return change

    def rejudge(self, now_ms: int) -> None:
        """Take the limits in force for what is in the windows alone, and have every session look anew: whether quotas
        are enforced has changed, and what nobody was held for is owed no longer than a broker would remember it.
        """
        for counters in self._counters.values():
            counters.rejudge(now_ms)
        self.generation += 1

    def usage(self, now_ms: int) -> list[CounterState]:
        """Return what every counter with a limit stands at. Plain data, and a look only: no sample moves."""
        return [usage for counters in self._counters.values() for usage in counters.usage(now_ms)]

    def take(self, now_ms: int) -> Iterator[tuple[CounterState, Counted]]:
        """Yield what every counter with a limit stands at, and what it has counted since it was taken last.

        It may be left off in between for as long as one likes: what comes or goes meanwhile is counted once, too.
        """
        for counters in self._counters.values():
            yield from counters.take(now_ms)

    def take_gone(self) -> list[Gone]:
        """Return what counters have counted since they were taken last that are gone by now, or have lost their limit.

        Of very many the last are one of user and client-id FOLDED.
        """
        return [gone for counters in self._counters.values() for gone in counters.take_gone()]

    def elsewhere(self, numbers: Mapping[CounterKey, float]) -> None:
        """Replace what other workers and instances used, per counter, in its current window.

        It is added to the local sum whenever a rate is evaluated and never becomes a local sample, so that it
        cannot be counted twice. In the counter's unit times seconds (bytes, percent-seconds).
        """
        for kind, counters in self._counters.items():
            counters.elsewhere({key: used for key, used in numbers.items() if key.kind is kind})

    def expire(self, now_ms: int) -> int:
        """Drop the counters that hold nothing any more and return how many: N windows after their last event.

        Each counter is looked at once when it is new and then when it may be idle, never in between, so this costs
        what has changed and not what exists. ``generation`` rises only if sessions are to learn of a bound that
        replaced theirs: while nobody else came, theirs goes on, with its totals, after any pause.
        """
        dropped = 0
        for counters in self._counters.values():
            dropped += counters.expire(now_ms)
            if counters.superseded:
                counters.superseded = False
                self.generation += 1
        return dropped
