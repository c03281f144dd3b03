"""Reads quotas from brokers' descriptions, and encodes changes for them (KIP-546)."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from config.problems import Problem
from protocol.client_quotas import Described, Named, Op, QuotaEntry, Result
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.networks import canonical_ip
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered, Limits, Outcome, Refusal, check
from quotas.stores.base import UnreadableEntry
from quotas.stores.unlimited import of_zero


@dataclass(frozen=True, slots=True)
class ClusterQuotas:
    """The quotas described by brokers."""

    policy: Policy
    version: str
    names: Mapping[Entity, tuple[Named, ...]]
    """Entity → its names as the brokers have them: a long name, or an address in another spelling."""
    unread: Sequence[UnreadableEntry]
    """Entries that Sluice does not support."""


def read(described: Sequence[Described], source: str) -> ClusterQuotas:
    """Return the quotas. Unsupported ones are skipped with a warning, and limit no client of the proxy."""
    limits: dict[Entity, Mapping[QuotaKind, float]] = {}
    names: dict[Entity, tuple[Named, ...]] = {}
    unread: list[UnreadableEntry] = []
    digest = hashlib.sha256()
    for each in sorted(described, key=_order):
        of_whom = ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in each.entity)

        def skip(message: str, whose: Entity | None = None, of_whom: str = of_whom) -> None:
            unread.append(UnreadableEntry(Problem(source, 0, 0, of_whom, f"{message}; it is skipped"), whose))

        digest.update(repr((sorted(each.entity, key=str), sorted(each.limits))).encode())
        try:
            entity = _entity(each.entity)
        except ValueError as error:
            skip(f"is no entity in Sluice: {error}")
            continue
        known = entity.kinds
        found: dict[QuotaKind, float] = {}
        for name, limit in each.limits:
            kind = known.get(name)
            if kind is None:
                skip(f"{name} is not a quota in Sluice")
            elif math.isnan(limit) or limit < 0:
                skip(f"{name}: {limit} is no limit", entity)
            else:
                found[kind] = of_zero(kind, limit)
        if entity in limits:
            skip("has the same entity as another one", entity)
        elif found:
            limits[entity], names[entity] = found, each.entity
    return ClusterQuotas(Policy(limits), digest.hexdigest(), names, unread)


def entries(
    changes: Mapping[Entity, Sequence[Altered]], names: Mapping[Entity, tuple[Named, ...]], alteration: Alteration
) -> dict[Entity, QuotaEntry]:
    """Return the entries to send. A name unknown to the brokers is sent as requested, however long."""
    asked = {}
    for change in alteration.changes:
        if not isinstance(found := check(change), Refusal):
            asked[found[0]] = tuple(
                (kind, name if isinstance(name, str) else None) for kind, name in change.entity.items() if kind != "ip"
            )
    return {
        entity: QuotaEntry(
            names.get(entity)
            or asked.get(entity)
            or (("ip", None if entity.ip is Default.DEFAULT else str(entity.ip)),),
            tuple(Op(each.kind.value, each.new) for each in altered),
        )
        for entity, altered in changes.items()
    }


def outcome_of(result: Result, entity: Entity, altered: tuple[Altered, ...]) -> Outcome:
    """Return the outcome of a change, in the broker's words."""
    if not result.error_code:
        return Outcome(None, altered)
    said = result.message or "no reason given"
    return Outcome(Refusal(entity.describe(), f"the broker refuses it: {said} (error {result.error_code})"))


def holds(policy: Policy, entity: Entity, limits: Limits) -> bool:
    """Whether the quotas have the altered limits."""
    now = policy.limits.get(entity, {})
    return all(now.get(kind) == limit for kind, limit in limits.items())


def _order(described: Described) -> list[tuple[str, str]]:
    return sorted((kind, "" if name is None else f"={name}") for kind, name in described.entity)


def _entity(named: Sequence[Named]) -> Entity:
    names = {kind: Default.DEFAULT if name is None else name for kind, name in named}
    if strangers := names.keys() - {"user", "client-id", "ip"}:
        raise ValueError(f"{', '.join(sorted(strangers))} is no kind of entity")
    ip = names.get("ip")
    return Entity(names.get("user"), names.get("client-id"), canonical_ip(ip) if isinstance(ip, str) and ip else ip)
