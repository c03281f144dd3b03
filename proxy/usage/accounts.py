"""Accounts: a client's meter and the quota counters that its requests are charged to.

There is one account for each listener, broker, user and client-id, shared by all of that client's connections. It lives
while one of them holds it; its meter lives until its counts are in a usage record.
"""

from proxy.usage.meter import Meter, MeterKey
from proxy.usage.meters import Meters
from quotas.engine import Bound, CounterState, Engine
from quotas.exemptions import NOBODY, Exemptions
from quotas.kinds import QuotaKind
from quotas.names import shared_name


class Account:
    """A client's usage through one listener at one broker."""

    __slots__ = ("_bounds", "_engine", "_generation", "_limited", "_meters", "holders", "key", "meter")

    def __init__(self, engine: Engine, meters: Meters, key: MeterKey) -> None:
        self._engine = engine
        self._meters = meters
        self.key = key
        self.meter = meters.find(key)
        """The meter of the account's holders. Shared with other clients if there are more clients than meters."""
        self.holders = 0
        """Number of sessions that may still count or charge here."""
        self._generation = engine.generation
        self._bounds: dict[QuotaKind, tuple[Bound, ...]] = {}
        self._limited: dict[QuotaKind, tuple[Bound, ...]] = {}

    def bounds(self, kind: QuotaKind) -> tuple[Bound, ...]:
        """Return all counters that it is charged to: that of the quota that applies, and those of caps, the narrowest
        first. They are valid for the current ``Engine.generation``.
        """
        if self._generation != self._engine.generation:
            self._generation = self._engine.generation
            self.let_go()
        found = self._bounds.get(kind)
        if found is None:
            found = self._resolve(kind)
            if self.holders:
                self._bounds[kind] = found
                for bound in found:
                    bound.hold()
        return found

    def let_go(self) -> None:
        for bounds in self._bounds.values():
            for bound in bounds:
                bound.let_go()
        self._bounds.clear()
        self._limited.clear()

    def nearest(self, now_ms: int) -> CounterState | None:
        """Return the state of the counter nearest to its limit, of those it was charged to lately; creates none."""
        found: CounterState | None = None
        highest = -1.0
        for bounds in self._bounds.values():
            for bound in bounds:
                state = bound.usage(now_ms)
                ratio = None if state is None else state.ratio
                if ratio is not None and ratio > highest:
                    found = state
                    highest = ratio
        return found

    def limited(self, kind: QuotaKind) -> tuple[Bound, ...]:
        """Return the counters that have a limit in force."""
        if self._generation == self._engine.generation and (limited := self._limited.get(kind)) is not None:
            return limited
        limited = self._limited[kind] = tuple([bound for bound in self.bounds(kind) if bound.limit is not None])
        return limited

    def charge(self, kind: QuotaKind, value: float, now_ms: int) -> int:
        """Charge all counters; return the longest throttle time of any."""
        throttle_ms = 0
        for bound in self.bounds(kind):
            throttle_ms = max(bound.charge(value, now_ms), throttle_ms)
        return throttle_ms

    def has_shadow(self, kind: QuotaKind) -> bool:
        for bound in self.bounds(kind):  # noqa: SIM110  hot, and compiled a generator is an object
            if bound.shadow_limit is not None:
                return True
        return False

    def is_shut(self, kind: QuotaKind) -> bool:
        """Whether a counter with a limit in force was in debt: requests ask it before they are charged."""
        for bound in self.limited(kind):  # noqa: SIM110  hot, and compiled a generator is an object
            if bound.shut:
                return True
        return False

    def open(self, kind: QuotaKind) -> tuple[Bound, ...]:
        """Return the counters that requests need only be charged to, until a charge of one asks for a throttle; none
        if one of them is shut, or has a limit in shadow.
        """
        found = self.bounds(kind)
        for bound in found:
            if bound.shadow_limit is not None or (bound.shut and bound.limit is not None):
                return ()
        return found

    @property
    def live_meter(self) -> Meter:
        """The meter to count on without holding the account, whose own meter may be gone."""
        return self.meter if self.holders else self._meters.find(self.key)

    def _resolve(self, kind: QuotaKind) -> tuple[Bound, ...]:
        engine, key = self._engine, self.key
        if key.exempt:
            return (engine.unlimited(kind),)
        # A quota for all clients of a mechanism applies also to those with a name within it, all together, unless that
        # name has a quota itself.
        user, shared = key.user, shared_name(key.user)
        if shared is not None and engine.names(shared) and not engine.names(user):
            user = shared
        client = (user, key.client_id, kind, key.broker)
        return (engine.resolve(*client), *(engine.resolve_caps(*client) if engine.has_caps else ()))


class Accounts:
    """The accounts of one listener's clients."""

    def __init__(self, meters: Meters, engine: Engine, listener: str, exemptions: Exemptions = NOBODY) -> None:
        self._meters = meters
        self._engine = engine
        self.listener = listener
        self.exemptions = exemptions
        self._accounts: dict[MeterKey, Account] = {}
        self.nobody = Account(engine, Meters(1), MeterKey(listener, -1, "", "", exempt=True))
        """The account of connections whose client is not known or not authenticated yet: no quota applies."""
        self.nobody.holders = 1
        self.refused = 0
        """Connections refused since the last record, before their client was known."""

    def __len__(self) -> int:
        return len(self._accounts)

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def find(self, key: MeterKey) -> Account | None:
        return self._accounts.get(key)

    def hold(self, broker: int, user: str, client_id: str, *, exempt: bool = False) -> Account:
        """Return a client's account, to be given back (``broker``: node id, -1 if not known yet).

        ``exempt``: the connection is exempt, whichever client it is.
        """
        key = MeterKey(self.listener, broker, user, client_id, exempt or self.exemptions.covers(user, client_id))
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(self._engine, self._meters, key)
            account.meter.holders += 1
        account.holders += 1
        return account

    def give_back(self, account: Account) -> None:
        """Let go of ``account`` for a holder that will no longer count or charge there."""
        account.holders -= 1
        if not account.holders and account is not self.nobody:
            account.meter.holders -= 1
            account.let_go()
            del self._accounts[account.key]
