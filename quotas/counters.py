"""The counters of one quota kind: created on first use, dropped when idle."""

from collections.abc import Iterable, Iterator, Mapping

from quotas.bound import Bound, Inert
from quotas.counted import CAP, CLUSTER, PREFIX, Counted, CounterKey, CounterState, Gone
from quotas.entities import Entity
from quotas.folding import FOLDED, fold
from quotas.kinds import Law, QuotaKind
from quotas.mutations import TokenBound
from quotas.names import OTHER, NameBudget
from quotas.policy import Key, Policy
from quotas.precedence import Counter
from quotas.rate import Window
from quotas.rulebook import Rulebook
from quotas.shares import Demand

_ALIKE = 0.01
"""A share that changes by less than this part of itself is left as it is."""
MAX_GONE = 10_000
"""Dropped counters whose last totals are kept by name until they are taken; further ones are summed up under FOLDED."""


class Counters:
    """The counters of one quota kind (Kafka: ClientQuotaManager), or of its caps."""

    __slots__ = (
        "_bounds",
        "_brokers",
        "_cap_ms",
        "_gone",
        "_kind",
        "_names",
        "_newcomers",
        "_of_cluster",
        "_otherwise",
        "_parts",
        "_watched",
        "_window",
        "inert",
        "rules",
    )

    def __init__(self, kind: QuotaKind, window: Window, names: NameBudget, *, cap: bool = False) -> None:
        self._kind = kind
        self.rules = Rulebook(kind, cap=cap)
        self._names = names
        self._window = window
        self._cap_ms = window.size_ms if kind.row.capped else None
        self._bounds: dict[CounterKey, Bound] = {}
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
        if not self.rules.is_in_use:
            return self.inert
        return self._find(self.rules.counter(user, client_id), broker)

    def resolve_caps(self, user: str, client_id: str, broker: int) -> tuple[Bound, ...]:
        """Return the counters of all caps that hold for a client, the narrowest first."""
        return tuple([self._find(counter, broker) for _, counter in self.rules.caps(user, client_id)])

    def _find(self, counter: Counter, broker: int) -> Bound:
        key = CounterKey(self._kind, counter.user, counter.client_id, broker, counter.several)
        if self._kind.row.of_cluster or (
            self.rules.has_scopes and self.rules.terms(self.rules.limiting(key)).of_cluster
        ):
            key = key._replace(broker=CLUSTER)
        return self._bounds.get(key) or self._make(key)

    def _make(self, key: CounterKey) -> Bound:
        """Return a new counter. Once the memory for names is used up, all further client-ids of a user share one,
        unless a quota names this client-id.
        """
        if self._names.full and key.client_id and not key.several & PREFIX:
            limiting = self.rules.limiting(key)
            if limiting is None or not isinstance(limiting[1], str):
                key = key._replace(client_id=OTHER)
                self._names.refuse()
        return self._bounds.get(key) or self._register(key)

    def _register(self, key: CounterKey) -> Bound:
        is_bucket = self._kind.row.law is Law.TOKEN_BUCKET
        bound = TokenBound(key, self._window) if is_bucket else Bound(key, self._window, self._cap_ms)
        self._bounds[key] = bound
        self._names.take(key.user, key.client_id)
        self._brokers.add(key.broker)
        self._newcomers.append(bound)
        if key.broker == CLUSTER and not self._kind.row.of_cluster:
            self._of_cluster[key] = bound
            bound.share = self._parts.get(key, self._otherwise)
        self._limit(bound)
        return bound

    def limit_of(self, user: str, client_id: str) -> tuple[float | None, Entity | None]:
        """Return the enforced limit that wins for a client, and its entity."""
        if not self.rules.is_in_use:
            return None, None
        key = self.rules.winner(user, client_id)
        if key is None or self.rules.terms(key).shadow:
            return None, None
        return self.rules.limit(key), self.rules.entity(key)

    def caps_of(self, user: str, client_id: str) -> list[tuple[float, Entity, Counter]]:
        """Return the enforced caps that apply to a client, with their entities and the names of their counters."""
        caps = self.rules.caps(user, client_id)
        return [
            (self.rules.limit(key), self.rules.entity(key), of) for key, of in caps if not self.rules.terms(key).shadow
        ]

    def shadow_of(self, user: str, client_id: str) -> float | None:
        """Return the limit that is measured but not enforced for a client."""
        if self.rules.is_plain:
            return None
        key = self.rules.winner(user, client_id)
        terms = self.rules.terms(key)
        return self.rules.limit(key) if key is not None and terms.shadow else terms.proposed

    def apply(self, policy: Policy, touched: set[Key], now_ms: int) -> None:
        """Apply the rules of ``policy``; ``touched`` are those that differ from before."""
        self.rules.put_in_force(policy, touched)
        for bound in self._concerned(touched):
            was_free = bound.limit is None and bound.shadow_limit is not None
            if not self._limit(bound):
                continue
            if was_free:
                bound.forgive(now_ms)
            else:
                bound.rejudge(now_ms)

    def rejudge(self, now_ms: int) -> None:
        for bound in self._bounds.values():
            bound.forgive(now_ms)

    def in_debt(self, now_ms: int, since_ms: int) -> Iterator[Bound | None]:
        """Yield each counter that has been in debt at any time since ``since_ms``, or in whose queue requests wait, and
        None for the others.
        """
        for bound in list(self._bounds.values()):
            was = bool(bound.queue) or bound.until_ms > since_ms
            is_in_debt = was or (bound.shut and bound.owed_ms(now_ms) > 0)
            yield bound if bound.limit is not None and is_in_debt else None

    def usage(self, now_ms: int) -> Iterator[CounterState]:
        for bound in self._bounds.values():
            usage = bound.usage(now_ms)
            if usage is not None:
                yield usage

    def take(self, now_ms: int) -> Iterator[tuple[CounterState, Counted]]:
        for bound in [bound for bound in self._bounds.values() if bound.rule is not None]:
            usage = bound.usage(now_ms)
            if usage is not None:  # its limit may have been removed meanwhile
                yield usage, bound.take_counted()

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
                        self._watch(now_ms + needed_ms, bound)
                        continue
                    self._keep_totals(bound)
                    bound.rest()
                if bound.holders:
                    resting.append(bound)
                    continue
                del self._bounds[bound.key]
                self._of_cluster.pop(bound.key, None)
                self._names.give_back(bound.user, bound.client_id)
                dropped += 1
        self._watch(now_ms + self._window.keep_ms, *resting)
        return dropped

    def _watch(self, idle_ms: int, *bounds: Bound) -> None:
        """Check ``bounds`` again in the first window that begins at or after ``idle_ms``."""
        self._watched.setdefault(-(-idle_ms // self._window.size_ms), []).extend(bounds)

    def _concerned(self, touched: set[Key]) -> Iterator[Bound]:
        """Yield the counters whose limit may have changed: those with exactly these tags, or all if a key is not a
        plain name.
        """
        if not self._bounds:
            return
        if any(not isinstance(part, str | None) for key in touched for part in key):
            yield from self._bounds.values()
            return
        several = CAP if self.rules.cap else 0
        for user, client_id in touched:
            for broker in self._brokers:
                key = CounterKey(self._kind, str(user or ""), str(client_id or ""), broker, several)
                bound = self._bounds.get(key)
                if bound is not None:
                    yield bound

    def _limit(self, bound: Bound) -> bool:
        """Set the limit and terms of ``bound``. Returns whether the effective limit changed."""
        key = self.rules.limiting(bound.key)
        limit: float | None = None if key is None else self.rules.limit(key)
        terms = self.rules.terms(key)
        if (key is None) is not (bound.rule is None):
            self._keep_totals(bound)  # usage without a quota is not counted under one
        bound.rule = None if key is None else self.rules.entity(key)
        bound.max_delay_ms = terms.max_delay_ms
        bound.shadow_limit = None if terms.proposed is None else terms.proposed * bound.share
        if limit is not None:
            limit *= bound.share
        if terms.shadow:
            bound.shadow_limit = limit  # not as a tuple assignment: docs/decisions/0020
            limit = None
        before = bound.window
        if terms.burst_ms is None:
            bound.set_window(self._window)
        elif self._kind.row.law is Law.TOKEN_BUCKET:
            bound.set_window(self._window.of_bucket(terms.burst_ms))
        else:
            bound.set_window(self._window.of_burst(terms.burst_ms))
        if limit == bound.limit:
            return bound.window != before
        bound.set_limit(limit)
        return True
