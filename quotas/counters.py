"""The counters of one quota kind: created on first use, dropped when idle."""

from collections.abc import Iterable, Iterator, Mapping

from quotas.bound import Bound, Inert
from quotas.counted import CAP, CLUSTER, PREFIX, CounterKey, Gone
from quotas.kinds import Law, QuotaKind
from quotas.mutations import TokenBound
from quotas.names import FOLDED, OTHER, NameBudget, fold
from quotas.policy import Book, Key, Policy
from quotas.precedence import Counter, caps_of, counter_of, key_of, level_of
from quotas.rate import Window
from quotas.shares import Demand

_ALIKE = 0.01
"""A share that changes by less than this part of itself is left as it is."""
MAX_GONE = 10_000
"""Dropped counters whose last totals are kept by name until they are taken; further ones are summed up under FOLDED."""


class Counters:
    """The counters of one quota kind (Kafka: ClientQuotaManager), of which one applies to each client; or of its caps,
    all of which apply.
    """

    __slots__ = (
        "_brokers",
        "_cap",
        "_cap_ms",
        "_gone",
        "_has_scopes",
        "_kind",
        "_names",
        "_newcomers",
        "_of_cluster",
        "_otherwise",
        "_parts",
        "_watched",
        "_window",
        "book",
        "bounds",
        "in_use",
        "inert",
    )

    def __init__(self, kind: QuotaKind, window: Window, names: NameBudget, *, cap: bool = False) -> None:
        self._kind = kind
        self._cap = cap
        self.book = Book()
        """The rules in force."""
        self.in_use = 0
        """The bits of levels that ever had a rule: from then on every client is measured."""
        self._has_scopes = False
        """Some limits are of the whole cluster."""
        self._names = names
        self._window = window
        self._cap_ms = window.size_ms if kind.row.capped else None
        self.bounds: dict[CounterKey, Bound] = {}
        self._brokers: set[int] = set()
        self._newcomers: list[Bound] = []
        self._watched: dict[int, list[Bound]] = {}
        """The other counters, by the window (number of Window.size_ms since 0) at whose start they may be idle."""
        self._of_cluster: dict[CounterKey, Bound] = {}
        """The counters of the whole cluster, of each of which other processes may have a share."""
        self._parts: Mapping[CounterKey, float] = {}
        self._otherwise = 1.0
        self._gone: dict[CounterKey, Gone] = {}
        self.inert = Inert(CounterKey(kind, "", "", -1), window, None)

    def resolve(self, user: str, client_id: str, broker: int) -> Bound:
        """Return the counter of the quota that wins for a client."""
        return self._find(counter_of(self.book, self.in_use, user, client_id), broker) if self.in_use else self.inert

    def resolve_caps(self, user: str, client_id: str, broker: int) -> tuple[Bound, ...]:
        """Return the counters of all caps that hold for a client, the narrowest first."""
        return tuple([self._find(counter, broker) for _, counter in caps_of(self.book, user, client_id)])

    def _find(self, counter: Counter, broker: int) -> Bound:
        key = CounterKey(self._kind, counter.user, counter.client_id, broker, counter.several)
        if self._kind.row.of_cluster or (self._has_scopes and self.book.terms_of(self._limiting(key)).of_cluster):
            key = key._replace(broker=CLUSTER)
        return self.bounds.get(key) or self._make(key)

    def _make(self, key: CounterKey) -> Bound:
        """Return a new counter. Once the memory for names is used up, all further client-ids of a user share one,
        unless a quota names this client-id.
        """
        if self._names.full and key.client_id and not key.several & PREFIX:
            limiting = self._limiting(key)
            if limiting is None or not isinstance(limiting[1], str):
                key = key._replace(client_id=OTHER)
                self._names.refuse()
        return self.bounds.get(key) or self._register(key)

    def _register(self, key: CounterKey) -> Bound:
        is_bucket = self._kind.row.law is Law.TOKEN_BUCKET
        bound = TokenBound(key, self._window) if is_bucket else Bound(key, self._window, self._cap_ms)
        self.bounds[key] = bound
        self._names.take(key.user, key.client_id)
        self._brokers.add(key.broker)
        self._newcomers.append(bound)
        if key.broker == CLUSTER and not self._kind.row.of_cluster:
            self._of_cluster[key] = bound
            bound.share = self._parts.get(key, self._otherwise)
        self._limit(bound)
        return bound

    def _limiting(self, key: CounterKey) -> Key | None:
        """Return the rule that applies to a counter."""
        return key_of(self.book, Counter(key.user, key.client_id, key.several))

    def apply(self, policy: Policy, touched: set[Key], now_ms: int) -> None:
        """Apply the rules of ``policy``; ``touched`` are those that differ from before."""
        self.book = policy.book(self._kind, cap=self._cap)
        self._has_scopes = any(terms.of_cluster for terms in self.book.terms.values())
        # A removal sets the bit of its level too, and nothing ever clears one (QuotaTypes).
        for key in touched:
            self.in_use |= level_of(key)
        for bound in self._concerned(touched):
            was_free = bound.limit is None and bound.shadow_limit is not None
            if not self._limit(bound):
                continue
            if was_free:
                bound.forgive(now_ms)
            else:
                bound.rejudge(now_ms)

    def take_gone(self) -> Iterable[Gone]:
        gone, self._gone = self._gone, {}
        return gone.values()

    def _keep_totals(self, bound: Bound) -> None:
        """Keep the totals of a counter that rests, is dropped, or no longer has a limit."""
        counted = bound.take_counted()
        if bound.rule is None or not (counted.charged or counted.throttled):
            return
        key = fold(bound.key, self._gone, MAX_GONE, bound.key._replace(user=FOLDED, client_id=FOLDED))
        before = self._gone.get(key)
        self._gone[key] = Gone(key, bound.rule, counted if before is None else before.counted.plus(counted))

    def demands(self, now_ms: int) -> Iterator[tuple[CounterKey, Demand]]:
        for key, bound in list(self._of_cluster.items()):
            yield key, Demand() if bound.rule is None else bound.demand(now_ms)

    def share(self, parts: Mapping[CounterKey, float], otherwise: float, now_ms: int) -> Iterator[Bound | None]:
        self._parts, self._otherwise = parts, otherwise
        for key, bound in list(self._of_cluster.items()):
            part, changed = parts.get(key, otherwise), None
            if abs(part - bound.share) > _ALIKE * part:
                limit, bound.share = bound.limit or 0.0, part
                if self._limit(bound):
                    bound.change_share(limit, now_ms)
                    changed = bound
            yield changed

    def expire(self, now_ms: int) -> int:
        for bound in self._newcomers:
            # A counter that was looked up but not charged yet is about to be: keep it for a window.
            self._watch((now_ms if bound.last_ms is None else bound.last_ms) + bound.window.keep_ms, bound)
        self._newcomers = []
        dropped = 0
        resting: list[Bound] = []
        for number in sorted(number for number in self._watched if number <= now_ms // self._window.size_ms):
            for bound in self._watched.pop(number):
                if not bound.rests:
                    if needed_ms := bound.needed_ms(now_ms):
                        self._budget(bound, counts=True)
                        self._watch(now_ms + needed_ms, bound)
                        continue
                    self._keep_totals(bound)
                    bound.rest()
                self._budget(bound, counts=False)  # whoever holds it has these names in memory already
                if bound.holders:
                    resting.append(bound)
                    continue
                del self.bounds[bound.key]
                self._of_cluster.pop(bound.key, None)
                dropped += 1
        self._watch(now_ms + self._window.keep_ms, *resting)
        return dropped

    def _budget(self, bound: Bound, *, counts: bool) -> None:
        """Let the names of a counter count or not: those of idle connected clients shut nobody out of a counter."""
        if bound.in_budget is not counts:
            bound.in_budget = counts
            change = self._names.take if counts else self._names.give_back
            change(bound.key.user, bound.key.client_id)

    def _watch(self, idle_ms: int, *bounds: Bound) -> None:
        """Check ``bounds`` again in the first window that begins at or after ``idle_ms``."""
        self._watched.setdefault(-(-idle_ms // self._window.size_ms), []).extend(bounds)

    def _concerned(self, touched: set[Key]) -> Iterator[Bound]:
        """Yield the counters whose limit may have changed: those with exactly these tags, or all if a key is not a
        plain name.
        """
        if not self.bounds:
            return
        if any(not isinstance(part, str | None) for key in touched for part in key):
            yield from self.bounds.values()
            return
        several = CAP if self._cap else 0
        for user, client_id in touched:
            for broker in self._brokers:
                key = CounterKey(self._kind, str(user or ""), str(client_id or ""), broker, several)
                bound = self.bounds.get(key)
                if bound is not None:
                    yield bound

    def _limit(self, bound: Bound) -> bool:
        """Set the limit and terms of ``bound``. Returns whether the effective limit changed."""
        key = self._limiting(bound.key)
        limit: float | None = None if key is None else self.book.limits[key]
        terms = self.book.terms_of(key)
        if (key is None) is not (bound.rule is None):
            self._keep_totals(bound)  # usage without a quota is not counted under one
        bound.rule = None if key is None else self.book.entities[key]
        bound.max_delay_ms = terms.max_delay_ms
        proposed = terms.proposed.get(self._kind)
        bound.shadow_limit = None if proposed is None else proposed * bound.share
        if limit is not None:
            limit *= bound.share
        if terms.shadow:
            bound.shadow_limit = limit  # not as a tuple assignment: docs/decisions/0020
            limit = None
        before = bound.window
        window = self._window
        if terms.burst_ms is not None:
            window = window.of_burst(terms.burst_ms, of_bucket=self._kind.row.law is Law.TOKEN_BUCKET)
        bound.set_window(window)
        if limit == bound.limit:
            return bound.window != before
        bound.set_limit(limit)
        return True
