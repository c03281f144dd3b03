"""Explains which limits apply to one client, and why, from the engine: as data and as text."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from typing import Final, NamedTuple

from config.settings import Exempt
from quotas.connections import KIND as CONNECTIONS
from quotas.connections import ConnectionRates
from quotas.connections import counted_as as counted_address
from quotas.counted import GROUP, PREFIX
from quotas.engine import CLIENT_KINDS, Engine
from quotas.entities import ANONYMOUS, Default, Entity, Group, Name, Prefix
from quotas.exemptions import Exemptions
from quotas.kinds import BYTES, MUTATIONS, PERCENT, QuotaKind
from quotas.kinds import CONNECTIONS as OF_CONNECTIONS
from quotas.names import counted_as
from quotas.policy import PLAIN, Key, KindTerms, Policy
from quotas.precedence import Counter, Walk, counter_under, level_name, levels
from quotas.rate import Window
from quotas.stores.edit import number
from quotas.texts import rate

Where = Callable[[Entity, QuotaKind], str]
"""Returns where a limit is defined: its store, and the place in it."""

_UNITS: Final = {
    BYTES: "bytes/s",
    PERCENT: "% of one thread",
    MUTATIONS: "partitions/s",
    OF_CONNECTIONS: "connections/s",
}


class ExplainedClient(NamedTuple):
    """The client to explain; "" is no client-id, or an unknown ip."""

    user: str = ANONYMOUS
    client_id: str = ""
    ip: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A configured limit."""

    kind: QuotaKind
    entity: Entity
    limit: float
    where: str
    terms: KindTerms = PLAIN
    counted: str = ""
    """The clients that share the counter."""

    def as_data(self) -> dict[str, object]:
        return {
            "entity": self.entity.describe(),
            "limit": finite(self.limit),
            "where": self.where,
            "mode": "shadow" if self.terms.shadow else "enforce",
            "proposed": self.terms.proposed,
            "burst_ms": self.terms.burst_ms,
            "max_delay_ms": self.terms.max_delay_ms,
            "scope": scope(self.kind, self.terms),
            "counter": self.counted,
        }


@dataclass(frozen=True, slots=True)
class Level:
    """One level of precedence and its limit, None if it has none."""

    entity: Entity
    limit: float | None = None
    where: str = ""
    reached: bool = True
    """False for levels after the winner."""

    @property
    def level(self) -> str:
        """The name of the level."""
        of = self.entity
        if of.ip is not None:
            return "default ip" if isinstance(of.ip, Default) else "ip"
        return level_name((of.user, of.client_id))


@dataclass(frozen=True, slots=True)
class KindVerdict:
    """The result for one kind."""

    kind: QuotaKind
    levels: tuple[Level, ...]
    winner: Rule | None
    why: str
    caps: tuple[Rule, ...] = ()

    def as_data(self) -> dict[str, object]:
        return {
            "kind": self.kind.value,
            "unit": _UNITS[self.kind.row.unit],
            "scope": scope(self.kind, PLAIN if self.winner is None else self.winner.terms),
            "winner": None if self.winner is None else self.winner.as_data(),
            "why": self.why,
            "caps": [cap.as_data() for cap in self.caps],
            "levels": [
                {
                    "level": each.level,
                    "entity": each.entity.describe(),
                    "limit": finite(each.limit),
                    "where": each.where,
                    "reached": each.reached,
                }
                for each in self.levels
            ],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """All limits of a client."""

    client: ExplainedClient
    group: str | None
    exempt: str
    """The property by which the client is exempt from all quotas; "" if it is not."""
    verdicts: tuple[KindVerdict, ...]

    def title(self) -> str:
        """Return a description of the client."""
        client = self.client
        said = f"user {client.user}, {f'client-id {client.client_id}' if client.client_id else 'without a client-id'}"
        said += f", at {client.ip}" if client.ip else ""
        return said + (f", of the group {self.group}" if self.group is not None else "")

    def as_data(self) -> dict[str, object]:
        return {
            "user": self.client.user,
            "client_id": self.client.client_id,
            "ip": self.client.ip or None,
            "group": self.group,
            "exempt": self.exempt or None,
            "kinds": [verdict.as_data() for verdict in self.verdicts],
        }


class Explainer:
    """Explains clients under one policy."""

    def __init__(self, policy: Policy, exempt: Exempt | None = None, where: Where | None = None) -> None:
        self._policy = policy
        self._exempt = exempt or Exempt()
        self._where = where or (lambda _, __: "")
        self._engine = Engine(policy)
        self._rates = ConnectionRates(Window(), None, {})
        self._rates.apply(policy)

    def explain(self, client: ExplainedClient) -> Explanation:
        """Return the explanation for ``client``; its ip has to be an address."""
        user, client_id = counted_as(client.user), counted_as(client.client_id)
        verdicts = [self.verdict(user, client_id, kind) for kind in CLIENT_KINDS]
        if client.ip:
            verdicts.append(self._of_address(counted_address(client.ip)))
        exempt = self._exempt_by(user, client_id, client.ip)
        return Explanation(client, self._policy.group_of.get(user), exempt, tuple(verdicts))

    def _exempt_by(self, user: str, client_id: str, ip: str) -> str:
        if Exemptions(self._exempt.users).covers(user, ""):
            return "user"
        if client_id and Exemptions((), self._exempt.client_ids).covers("", client_id):
            return "client-id"
        networks = Exemptions((), (), self._exempt.networks)
        return "network" if ip and networks.covers_address(ip) else ""

    def verdict(self, user: str, client_id: str, kind: QuotaKind) -> KindVerdict:
        """Return the result for one kind, for names as they are counted."""
        policy = self._policy
        walk = self._engine.explain(user, client_id, kind)
        all_levels = [*levels(policy.book(kind), user, client_id)]
        looked = [self._looked(kind, level.key, level.limit) for level in walk.levels]
        behind = all_levels[len(looked) :]
        looked += [self._looked(kind, key, policy.book(kind).limits.get(key), reached=False) for key in behind]
        caps = []
        for key, limit in walk.caps:
            terms = policy.book(kind, cap=True).terms_of(key)
            caps.append(self._rule(kind, key, limit, counter_under(key, user, client_id, terms), cap=True))
        return KindVerdict(kind, tuple(looked), self._winner(kind, walk), walk.why, tuple(caps))

    def winner(self, user: str, client_id: str, kind: QuotaKind) -> Rule | None:
        """Return only the rule that wins, as ``verdict`` does."""
        return self._winner(kind, self._engine.explain(user, client_id, kind))

    def _winner(self, kind: QuotaKind, walk: Walk) -> Rule | None:
        if walk.winner is None:
            return None
        return self._rule(kind, walk.winner, walk.levels[-1].limit, walk.counter, cap=False)

    def _looked(self, kind: QuotaKind, key: Key, limit: float | None, *, reached: bool = True) -> Level:
        if limit is None:
            return Level(Entity(*key), reached=reached)
        entity = self._policy.book(kind).entities[key]
        return Level(entity, limit, self._where(entity, kind), reached)

    def _rule(self, kind: QuotaKind, key: Key, limit: float | None, counter: Counter, *, cap: bool) -> Rule:
        book = self._policy.book(kind, cap=cap)
        entity, terms = book.entities[key], book.terms_of(key)
        return Rule(kind, entity, limit or 0.0, self._where(entity, kind), terms, _counted(counter))

    def _of_address(self, ip: str) -> KindVerdict:
        limits = self._policy.book(CONNECTIONS).limits
        limit, entity = self._rates.limit_of(ip)
        looked = []
        for name in (ip, Default.DEFAULT):
            found = limits.get((name, None))
            of = Entity(ip=name)
            reached = name is ip or entity.ip is not ip
            looked.append(Level(of, found, "" if found is None else self._where(of, CONNECTIONS), reached))
        if limit is None:
            unlimited = limits.get((entity.ip, None)) is not None
            why = f"{entity.describe()} has Kafka's word for no limit" if unlimited else "no level has a limit"
            return KindVerdict(CONNECTIONS, tuple(looked), None, why)
        own = entity.ip is not Default.DEFAULT
        why = "the address has a limit of its own" if own else "the default address is the first level with a limit"
        counted = f"ip={ip}" if own else f"ip={ip}, or its network if very many connect (docs/quotas.md)"
        rule = Rule(CONNECTIONS, entity, limit, self._where(entity, CONNECTIONS), counted=counted)
        return KindVerdict(CONNECTIONS, tuple(looked), rule, why)


def written(limit: float) -> str:
    """Return a limit as quota files have it; if they could not, as a float."""
    return "no limit" if isinf(limit) else number(limit) or f"{limit:.17g}"


def finite(limit: float | None) -> float | str | None:
    """Return a limit for JSON, which has no infinity."""
    return "Infinity" if limit is not None and isinf(limit) else limit


def amount(kind: QuotaKind, limit: float) -> str:
    """Return a limit with its unit, and in a larger unit if it is long."""
    if isinf(limit):
        return "no limit"  # to a broker, 0 bytes in ZooKeeper are no limit
    said = f"{written(limit)} {_UNITS[kind.row.unit]}"
    return f"{said} ({rate(limit)})" if kind.row.unit is BYTES and limit >= 1024 else said


def scope(kind: QuotaKind, terms: KindTerms = PLAIN) -> str:
    """Return the scope of a limit's counter."""
    return "in the whole cluster" if kind.row.of_cluster or terms.of_cluster else "at each broker"


def _counted(counter: Counter) -> str:
    """Return the clients of a counter, as an entity: a group or prefix has one counter."""
    user: Name = Group(counter.user.removeprefix("group:")) if counter.several & GROUP else counter.user or None
    client_id: Name = Prefix(counter.client_id[:-1]) if counter.several & PREFIX else counter.client_id or None
    said = Entity(user, client_id).describe()
    if client_id is None:
        return f"{said}, whatever the client-id"
    return f"{said}, whoever the user is" if user is None else said
