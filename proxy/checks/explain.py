"""Explains which limits apply to one client, and why, from the engine: as rows, which are JSON or text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isinf
from typing import Final, NamedTuple

from config.settings import Exempt
from quotas.connections import KIND as CONNECTIONS
from quotas.connections import ConnectionRates
from quotas.connections import counted_as as counted_address
from quotas.counted import GROUP, PREFIX
from quotas.entities import ANONYMOUS, Default, Entity, Group, Name, Prefix
from quotas.exemptions import Exemptions
from quotas.kinds import BYTES, CLIENT_KINDS, MUTATIONS, PERCENT, QuotaKind
from quotas.kinds import CONNECTIONS as OF_CONNECTIONS
from quotas.names import counted_as
from quotas.policy import PLAIN, Policy, Terms
from quotas.precedence import AppliedRule, Counter, levels, reason, rules_of
from quotas.rate import Window
from quotas.stores.edit import number
from quotas.texts import rate, shown

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


class RuleRow(NamedTuple):
    """A limit, as it is answered and printed; ``rule`` is None where there is none."""

    rule: str | None = None
    limit: float | None = None
    source: str | None = None
    mode: str | None = None
    proposed: float | None = None
    burst_ms: int | None = None
    max_delay_ms: int | None = None
    scope: str = ""
    counter: str | None = None
    """The clients that share the counter."""


class LevelRow(NamedTuple):
    """A level of precedence."""

    rule: str
    limit: float | None
    source: str | None
    wins: bool
    is_reached: bool


class ExplainedRow(NamedTuple):
    """The limit of one kind, as a RuleRow, and the walk that led to it."""

    kind: str
    rule: str | None
    limit: float | None
    source: str | None
    mode: str | None
    proposed: float | None
    burst_ms: int | None
    max_delay_ms: int | None
    scope: str
    counter: str | None
    why: str
    levels: tuple[LevelRow, ...]
    caps: tuple[RuleRow, ...]

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        if self.rule is None:
            yield f"{self.kind}: no quota ({self.why})"
        else:
            yield f"{self.kind}: {self._limit(self)}"
            yield f"  why: {self.why}"
            yield from self._terms(self)
        if any(each.limit is not None for each in self.levels):
            yield from self._table()
        for cap in self.caps:
            yield f"  also: {self._limit(cap)}"
            yield from (f"  {line}" for line in self._terms(cap))

    def _limit(self, of: "RuleRow | ExplainedRow") -> str:
        where = f" ({shown(of.source)})" if of.source else ""
        at = "in the whole cluster" if of.scope == "cluster" else "at each broker"
        return f"{amount(QuotaKind(self.kind), of.limit)} {at}, of {shown(of.rule or '')}{where}"

    def _terms(self, of: "RuleRow | ExplainedRow") -> Iterator[str]:
        yield f"  counter: one for {shown(of.counter or '')}"
        if of.mode == "shadow":
            yield "  mode: shadow: measured, not enforced"
        if of.proposed is not None:
            yield f"  proposed: {amount(QuotaKind(self.kind), of.proposed)}: measured beside it, not enforced"
        if of.burst_ms is not None:
            yield f"  burst: {of.burst_ms} ms' worth at once"
        if of.max_delay_ms is not None:
            yield f"  max_delay: no throttle is longer than {of.max_delay_ms} ms"

    def _table(self) -> Iterator[str]:
        """Yield a line for each level: its rule, its limit and where that is defined."""
        limits = ["-" if each.limit is None else written(each.limit) for each in self.levels]
        rules = [shown(each.rule) for each in self.levels]
        rule_width, limit_width = max(map(len, rules)), max(map(len, limits))
        for level, rule, limit in zip(self.levels, rules, limits, strict=True):
            remark = "wins" if level.wins else "not reached" if level.limit is not None and not level.is_reached else ""
            line = f"    {rule:<{rule_width}}  {limit:>{limit_width}}  {remark:<11}  {shown(level.source or '')}"
            yield line.rstrip()


@dataclass(frozen=True, slots=True)
class Explanation:
    """All limits of a client."""

    client: ExplainedClient
    group: str | None
    exempt: str
    """The property by which the client is exempt from all quotas; "" if it is not."""
    rows: tuple[ExplainedRow, ...]

    def title(self) -> str:
        """Return a description of the client."""
        client = self.client
        said = f"user {client.user}, {f'client-id {client.client_id}' if client.client_id else 'without a client-id'}"
        said += f", at {client.ip}" if client.ip else ""
        return said + (f", of the group {self.group}" if self.group is not None else "")


class Explainer:
    """Explains clients under one policy."""

    def __init__(self, policy: Policy, exempt: Exempt | None = None, where: Where | None = None) -> None:
        self._policy = policy
        self._exempt = exempt or Exempt()
        self._where = where or (lambda _, __: "")
        self._rates = ConnectionRates(Window(), None, {})
        self._rates.apply(policy)

    def explain(self, client: ExplainedClient) -> Explanation:
        """Return the explanation for ``client``; its ip has to be an address."""
        user, client_id = counted_as(client.user), counted_as(client.client_id)
        rows = [self._of_client(user, client_id, kind) for kind in CLIENT_KINDS]
        if client.ip:
            rows.append(self._of_address(counted_address(client.ip)))
        exempt = self._exempt_by(user, client_id, client.ip)
        return Explanation(client, self._policy.group_of.get(user), exempt, tuple(rows))

    def _exempt_by(self, user: str, client_id: str, ip: str) -> str:
        if Exemptions(self._exempt.users).covers(user, ""):
            return "user"
        if client_id and Exemptions((), self._exempt.client_ids).covers("", client_id):
            return "client-id"
        networks = Exemptions((), (), self._exempt.networks)
        return "network" if ip and networks.covers_address(ip) else ""

    def _of_client(self, user: str, client_id: str, kind: QuotaKind) -> ExplainedRow:
        book, (quota, caps) = self._policy.book(kind), rules_of(self._policy, user, client_id, kind)
        rule = RuleRow(scope=_scope(kind)) if quota is None else self._rule(kind, quota)
        winner = None if quota is None else quota.key
        looked: list[LevelRow] = []
        for key in levels(book, user, client_id):
            entity = book.entities.get(key, Entity(*key))
            is_reached = not (looked and (looked[-1].wins or not looked[-1].is_reached))
            looked.append(self._level(kind, entity, book.limits.get(key), wins=key == winner, is_reached=is_reached))
        why = reason(winner, client_id)
        return ExplainedRow(kind.value, *rule, why, tuple(looked), tuple(self._rule(kind, cap) for cap in caps))

    def _rule(self, kind: QuotaKind, rule: AppliedRule) -> RuleRow:
        entity, terms = rule.entity, rule.terms
        mode, where = "shadow" if terms.shadow else "enforce", self._where(entity, kind) or None
        of_terms = mode, terms.proposed.get(kind), terms.burst_ms, terms.max_delay_ms
        return RuleRow(entity.describe(), rule.limit, where, *of_terms, _scope(kind, terms), _counted(rule.counter))

    def _level(self, kind: QuotaKind, entity: Entity, limit: float | None, *, wins: bool, is_reached: bool) -> LevelRow:
        where = None if limit is None else self._where(entity, kind) or None
        return LevelRow(entity.describe(), limit, where, wins, is_reached)

    def _of_address(self, ip: str) -> ExplainedRow:
        limits = self._policy.book(CONNECTIONS).limits
        limit, entity = self._rates.limit_of(ip)
        looked = []
        for name in (ip, Default.DEFAULT):
            of = Entity(ip=name)
            wins, is_reached = limit is not None and of == entity, name is ip or entity.ip is not ip
            looked.append(self._level(CONNECTIONS, of, limits.get((name, None)), wins=wins, is_reached=is_reached))
        if limit is None:
            unlimited = limits.get((entity.ip, None)) is not None
            why = f"{entity.describe()} has Kafka's word for no limit" if unlimited else "no level has a limit"
            return ExplainedRow(CONNECTIONS.value, *RuleRow(scope=_scope(CONNECTIONS)), why, tuple(looked), ())
        own = entity.ip is not Default.DEFAULT
        why = "the address has a limit of its own" if own else "the default address is the first level with a limit"
        counter = f"ip={ip}" if own else f"ip={ip}, or its network if very many connect (docs/quotas.md)"
        where, scope = self._where(entity, CONNECTIONS) or None, _scope(CONNECTIONS)
        rule = RuleRow(entity.describe(), limit, where, "enforce", scope=scope, counter=counter)
        return ExplainedRow(CONNECTIONS.value, *rule, why, tuple(looked), ())


def written(limit: float) -> str:
    """Return a limit as quota files have it; if they could not, as a float."""
    return "no limit" if isinf(limit) else number(limit) or f"{limit:.17g}"


def amount(kind: QuotaKind, limit: float | None) -> str:
    """Return a limit with its unit, and in a larger unit if it is long. None: infinity, which JSON does not have."""
    if limit is None or isinf(limit):
        return "no limit"  # to a broker, 0 bytes in ZooKeeper are no limit
    said = f"{written(limit)} {_UNITS[kind.row.unit]}"
    return f"{said} ({rate(limit)})" if kind.row.unit is BYTES and limit >= 1024 else said


def _scope(kind: QuotaKind, terms: Terms = PLAIN) -> str:
    """Return the scope of a limit's counter."""
    return "cluster" if kind.row.of_cluster or terms.of_cluster else "broker"


def _counted(counter: Counter) -> str:
    """Return the clients of a counter, as an entity: a group or prefix has one counter."""
    user: Name = Group(counter.user.removeprefix("group:")) if counter.several & GROUP else counter.user or None
    client_id: Name = Prefix(counter.client_id[:-1]) if counter.several & PREFIX else counter.client_id or None
    said = Entity(user, client_id).describe()
    if client_id is None:
        return f"{said}, whatever the client-id"
    return f"{said}, whoever the user is" if user is None else said
