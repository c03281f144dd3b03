"""The quota engine: the counters of one worker under the policy in force."""

from collections.abc import Iterator, Mapping
from typing import Final

from quotas.bound import Bound
from quotas.counted import Counted, CounterKey, CounterState, Gone
from quotas.counters import Counters
from quotas.kinds import CLIENT_KINDS, Law, QuotaKind
from quotas.names import NameBudget
from quotas.policy import BOOKS, Policy
from quotas.rate import Window
from quotas.shares import Demand

__all__ = ["CLIENT_KINDS", "Bound", "Counted", "CounterKey", "CounterState", "Engine", "Gone", "Window"]

MAX_NAMES_BYTES: Final = 16 * 2**20
"""Memory for the names of all counters that do not rest: 150,000 counters, or 15,000 with the longest names."""


class Engine:
    """Counters for every kind in CLIENT_KINDS, under a policy that may be replaced at any time.

    ``generation`` rises whenever a Bound that a session holds may no longer be the right one: compare before use, and
    resolve again.

    ``controller_window`` is the window of token buckets. ``max_names_bytes`` bounds the memory for the names of
    counters.
    """

    __slots__ = ("_all", "_caps", "_counters", "_named", "_names", "_unseen", "generation", "has_caps", "policy")

    def __init__(
        self,
        policy: Policy,
        window: Window = Window(),  # noqa: B008  frozen
        *,
        controller_window: Window = Window(),  # noqa: B008  frozen
        max_names_bytes: int = MAX_NAMES_BYTES,
    ) -> None:
        self.generation = 0
        self.policy = Policy()
        """The policy in force."""
        self._named: set[str] = set()
        self._unseen: set[str] = set()
        names = self._names = NameBudget(max_names_bytes)
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
        """Return the counters of a client's caps. Otherwise as ``resolve``."""
        return self._caps[kind].resolve_caps(user, client_id, broker)

    def names(self, user: str) -> bool:
        """Whether a quota names ``user``, or a group that lists it."""
        return user in self._named

    def unseen(self) -> list[str]:
        """Return the users that a quota names, or whose group it names, and that no client has used since the quota was
        added. Usually the quotas spell them differently than clients do.
        """
        return sorted(self._unseen)

    def unlimited(self, kind: QuotaKind) -> Bound:
        """Return the counter of a client without any quota: it records nothing."""
        return self._counters[kind].inert

    def apply(self, policy: Policy, now_ms: int) -> None:
        """Replace the policy. Existing counters keep their usage and get the new limits at once."""
        self.expire(now_ms)
        regrouped = self.policy.group_of != policy.group_of
        changed = regrouped
        for kind, cap in BOOKS:
            touched = set().union(*self.policy.book(kind, cap=cap).differences(policy.book(kind, cap=cap)))
            changed = changed or bool(touched)
            counters = self._caps if cap else self._counters
            if (touched or regrouped) and kind in counters:
                counters[kind].apply(policy, touched, now_ms)
        self.policy = policy
        named = {each.user for each in policy.limits if isinstance(each.user, str)} | policy.group_of.keys()
        self._unseen = {user for user in named if user in self._unseen or user not in self._named}
        self._named = named
        self.has_caps = any(counters.book.limits for counters in self._caps.values())
        self.generation += changed

    def rejudge(self, now_ms: int) -> None:
        """Recompute debts from the usage in the windows and make every session resolve again, after enforcement was
        switched: usage that was not throttled is owed no longer than a broker would remember it.
        """
        for bound in self._bounds():
            bound.forgive(now_ms)
        self.generation += 1

    def _bounds(self) -> Iterator[Bound]:
        """Yield every counter. Others may come and go in between."""
        for counters in self._all:
            yield from list(counters.bounds.values())

    def in_debt(self, now_ms: int, since_ms: int) -> Iterator[Bound | None]:
        """Yield each counter that has been in debt at any time since ``since_ms``, or in whose queue requests wait, and
        None for the others.
        """
        for bound in self._bounds():
            was = bool(bound.queue) or bound.until_ms > since_ms
            is_in_debt = was or (bound.shut and bound.owed_ms(now_ms) > 0)
            yield bound if bound.limit is not None and is_in_debt else None

    def usage(self, now_ms: int) -> list[CounterState]:
        """Return the state of every counter with a limit. Changes nothing."""
        return [usage for bound in self._bounds() if (usage := bound.usage(now_ms)) is not None]

    def take(self, now_ms: int) -> Iterator[tuple[CounterState, Counted]]:
        """Yield the state of every counter with a limit, and its totals since the previous call.

        The caller may pause in between: counters that come or go meanwhile are still counted once.
        """
        for bound in self._bounds():
            if (usage := bound.usage(now_ms)) is not None:
                yield usage, bound.take_counted()

    def take_gone(self) -> list[Gone]:
        """Return the totals of counters that were dropped, or lost their limit, since the previous call.

        Beyond MAX_GONE they are summed up under user and client-id FOLDED.
        """
        return [gone for counters in self._all for gone in counters.take_gone()]

    def demands(self, now_ms: int) -> Iterator[tuple[CounterKey, Demand]]:
        """Yield the demand here for each counter of the whole cluster (``scope: cluster``)."""
        for counters in self._all:
            yield from counters.demands(now_ms)

    def share(self, parts: Mapping[CounterKey, float], otherwise: float, now_ms: int) -> Iterator[Bound | None]:
        """Put shares of limits of the whole cluster in force: for each counter its part, or ``otherwise``.

        Yields each counter whose limit is another one now, and None for the others.
        """
        for counters in self._all:
            yield from counters.share(parts, otherwise, now_ms)

    def expire(self, now_ms: int) -> int:
        """Drop the counters that are idle (N windows after their last event) and that nobody holds; return how many.

        Each counter is checked once when it is new and then only when it may be idle; while it rests, once in N
        windows. ``generation`` rises if clients that share a counter for lack of memory may get their own now.
        """
        dropped = sum([counters.expire(now_ms) for counters in self._all])
        if self._names.take_relief():
            self.generation += 1
        return dropped
