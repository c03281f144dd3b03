"""The part of a policy that Kafka can hold: limits of users, client-ids and addresses, without terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.manage.wording import names, terms_written
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.names import counted_as
from quotas.policy import Policy, Terms
from quotas.stores.alteration import Change, Refusal, check
from quotas.stores.unlimited import taken_over

_NO_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True)
class KafkaQuota:
    """The limits of one entity, and the terms of its rule."""

    entity: Entity
    limits: Mapping[QuotaKind, float]
    terms: Terms


def for_kafka(policy: Policy, there: Policy) -> tuple[list[KafkaQuota], list[str]]:
    """Return the quotas for a store that now holds ``there``, and messages about parts of the policy that are left out.

    Rules that the store already has are skipped. A rule in shadow or of the whole cluster is left out entirely, unless
    the store has the same terms: without them it would be enforced, or hold at each broker.
    """
    quotas: list[KafkaQuota] = []
    left_out: list[str] = []
    for entity, limits in policy.limits.items():
        if _is_same(entity, policy, there):
            continue
        terms = policy.terms.get(entity, _NO_TERMS)
        kept = entity in there.limits and terms == there.terms.get(entity, _NO_TERMS)
        if why := _beyond_kafka(entity, terms, kept=kept):
            left_out.append(f"{entity.describe()}: {why}")
            continue
        taken, refused = _checked(entity, {kind: taken_over(kind, limit) for kind, limit in limits.items()})
        left_out += refused
        if taken:
            quotas.append(KafkaQuota(entity, taken, terms))
            if not kept and (written := terms_written(terms)):
                left_out.append(f"{entity.describe()}: {', '.join(written)}: only its limits are imported")
    return quotas, left_out


def _is_same(entity: Entity, policy: Policy, there: Policy) -> bool:
    return (
        policy.limits[entity] == there.limits.get(entity)
        and policy.terms.get(entity) == there.terms.get(entity)
        and (not isinstance(entity.user, Group) or policy.groups == there.groups)
    )


def _beyond_kafka(entity: Entity, terms: Terms, *, kept: bool) -> str:
    """Return why Kafka cannot hold a rule; "" if it can."""
    if entity.cap or isinstance(entity.user, Group):
        return "Kafka has no caps and no groups"
    if isinstance(entity.client_id, Prefix):
        return "Kafka has no prefixes of client-ids"
    if terms.shadow and not kept:
        return "is in shadow: elsewhere it would be enforced"
    if terms.of_cluster and not kept:
        return "is of the whole cluster (scope: cluster): elsewhere it would apply at each broker"
    if any(isinstance(name, str) and counted_as(name) != name for name in names(entity).values()):
        return "only the beginning of its name is known"
    return ""


def _checked(entity: Entity, limits: Mapping[QuotaKind, float]) -> tuple[dict[QuotaKind, float], list[str]]:
    """Return the limits that Kafka accepts, and the reasons for the others."""
    taken: dict[QuotaKind, float] = {}
    refused: list[str] = []
    of_entity = {kind: name if isinstance(name, Default) else str(name) for kind, name in names(entity).items()}
    for kind, limit in limits.items():
        found = check(Change(of_entity, [(str(kind), float(limit))]))
        if isinstance(found, Refusal):
            refused.append(f"{entity.describe()}: {found}")
        else:
            taken[kind] = float(limit)
    return taken, refused
