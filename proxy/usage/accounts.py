"""Whom a request belongs to: what is counted for a client, and the counters that it is charged to.

An account is found once for each listener, broker, user and client-id, and shared by all connections that are theirs.
It lasts as long as one of them holds it; its meter lasts until what was counted is in a usage record.
"""

from proxy.usage.meter import Meter, MeterKey
from proxy.usage.meters import Meters
from quotas.engine import Bound, Engine
from quotas.exemptions import NOBODY, Exemptions
from quotas.kinds import QuotaKind
from quotas.names import shared_name


class Account:
    """What a client uses through one listener at one broker."""

    __slots__ = (
        "_all",
        "_bounds",
        "_caps",
        "_engine",
        "_generation",
        "_limited",
        "_meters",
        "holders",
        "key",
        "meter",
    )

    def __init__(self, engine: Engine, meters: Meters, key: MeterKey) -> None:
        self._engine = engine
        self._meters = meters
        self.key = key
        self.meter = meters.find(key)
        """Where those who hold the account count. Shared with others where there are more clients than meters."""
        self.holders = 0
        """Sessions that may still count or charge here."""
        self._generation = engine.generation
        self._bounds: dict[QuotaKind, Bound] = {}
        self._caps: dict[QuotaKind, tuple[Bound, ...]] = {}
        self._all: dict[QuotaKind, tuple[Bound, ...]] = {}
        self._limited: dict[QuotaKind, tuple[Bound, ...]] = {}

    def bound(self, kind: QuotaKind) -> Bound:
        """Return the counter of the quota that wins, right for ``Engine.generation``."""
        if self._generation != self._engine.generation:
            self._renew()
        bound = self._bounds.get(kind)
        if bound is None:
            bound = self._bounds[kind] = self._resolve(kind)
        return bound

    def caps(self, kind: QuotaKind) -> tuple[Bound, ...]:
        """Return the counters that it is charged to besides, likewise, the narrowest first: most often none."""
        if not self._engine.has_caps:
            return ()
        if self._generation != self._engine.generation:
            self._renew()
        caps = self._caps.get(kind)
        if caps is None:
            caps = self._caps[kind] = self._resolve_caps(kind)
        return caps

    def bounds(self, kind: QuotaKind) -> tuple[Bound, ...]:
        """Return all counters that it is charged to, that of the quota that wins first."""
        if self._generation != self._engine.generation:
            self._renew()
        found = self._all.get(kind)
        if found is None:
            found = self._all[kind] = (self.bound(kind), *self.caps(kind))
        return found

    def limited(self, kind: QuotaKind) -> tuple[Bound, ...]:
        """Return those that have a limit in force."""
        if self._generation != self._engine.generation:
            self._renew()
        limited = self._limited.get(kind)
        if limited is None:
            limited = tuple([bound for bound in self.bounds(kind) if bound.limit is not None])
            self._limited[kind] = limited
        return limited

    def charge(self, kind: QuotaKind, value: float, now_ms: int) -> int:
        """Charge all of them; returns the longest throttle time that one of them asks for."""
        throttle_ms = self.bound(kind).charge(value, now_ms)
        if self._engine.has_caps:
            for cap in self.caps(kind):
                throttle_ms = max(cap.charge(value, now_ms), throttle_ms)
        return throttle_ms

    def has_shadow(self, kind: QuotaKind) -> bool:
        """Whether one of them has a limit in shadow."""
        if self.bound(kind).shadow_limit is not None:
            return True
        return self._engine.has_caps and any(cap.shadow_limit is not None for cap in self.caps(kind))

    def _renew(self) -> None:
        self._generation = self._engine.generation
        self._bounds.clear()
        self._caps.clear()
        self._all.clear()
        self._limited.clear()

    @property
    def live_meter(self) -> Meter:
        """Where to count now, for one who does not hold the account: its meter may be gone."""
        return self.meter if self.holders else self._meters.find(self.key)

    @property
    def exempt(self) -> bool:
        """No quota holds it, of no kind: it is charged to nobody's counter."""
        return self.key.exempt

    @property
    def _counted_user(self) -> str:
        """Whose counters these are. A quota for all clients of a mechanism holds also those that have a name within it,
        all together, unless there is one for that name.
        """
        user = self.key.user
        shared = shared_name(user)
        return shared if shared is not None and self._engine.names(shared) and not self._engine.names(user) else user

    def _resolve(self, kind: QuotaKind) -> Bound:
        if self.key.exempt:
            return self._engine.unlimited(kind)
        return self._engine.resolve(self._counted_user, self.key.client_id, kind, self.key.broker)

    def _resolve_caps(self, kind: QuotaKind) -> tuple[Bound, ...]:
        if self.key.exempt:
            return ()
        return self._engine.resolve_caps(self._counted_user, self.key.client_id, kind, self.key.broker)


class Nobody(Account):
    """The account of connections whose client is not known yet, or has not proved who it is: no limit holds for it."""

    __slots__ = ()

    def _resolve(self, kind: QuotaKind) -> Bound:
        return self._engine.unlimited(kind)

    def _resolve_caps(self, kind: QuotaKind) -> tuple[Bound, ...]:  # noqa: ARG002  the face of Account
        return ()


class Accounts:
    """The accounts of one listener's clients."""

    __slots__ = ("_accounts", "_engine", "_listener", "_meters", "exemptions", "nobody", "refused")

    def __init__(self, meters: Meters, engine: Engine, listener: str, exemptions: Exemptions = NOBODY) -> None:
        self._meters = meters
        self._engine = engine
        self._listener = listener
        self.exemptions = exemptions
        self._accounts: dict[MeterKey, Account] = {}
        self.nobody: Account = Nobody(engine, Meters(1), MeterKey(listener, -1, "", ""))
        self.refused = 0
        """Connections refused since the last record, before anything was known of their clients."""

    def __len__(self) -> int:
        return len(self._accounts)

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def hold(self, broker: int, user: str, client_id: str, *, exempt: bool = False) -> Account:
        """Return the account of a client (node id of its broker, -1: not known yet), for the caller to give back.

        ``exempt``: its connection is, whoever the client is.
        """
        key = MeterKey(self._listener, broker, user, client_id, exempt or self.exemptions.covers(user, client_id))
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(self._engine, self._meters, key)
            account.meter.holders += 1
        account.holders += 1
        return account

    def give_back(self, account: Account) -> None:
        """Take note that one who held ``account`` counts and charges there no more."""
        account.holders -= 1
        if not account.holders and account is not self.nobody:
            account.meter.holders -= 1
            del self._accounts[account.key]
