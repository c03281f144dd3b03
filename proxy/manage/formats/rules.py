"""What of a policy other tools have words for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
class Rule:
    """The limits of one entity."""

    entity: Entity
    limits: Mapping[QuotaKind, float]
    terms: Terms = field(default_factory=Terms)


def as_rules(policy: Policy, *, ours: bool, there: Policy | None = None) -> tuple[list[Rule], list[str]]:
    """Return the rules of a policy, and in words what is left out of them.

    ``ours``: who takes them knows groups, prefixes, caps and terms. Otherwise they are for Kafka, but for prefixes,
    which some know. A rule in shadow is left out whole: it would begin to hold clients. ``there``: what is in the store
    that takes them. Rules that are there just as they are here are nobody's business, and terms that a rule has there
    too are not lost.
    """
    rules: list[Rule] = []
    left_out: list[str] = []
    for entity, limits in policy.limits.items():
        terms = policy.terms.get(entity, _NO_TERMS)
        if there is not None and _is_same(entity, policy, there):
            continue
        kept = ours or (there is not None and entity in there.limits and terms == there.terms.get(entity, _NO_TERMS))
        if why := "" if ours else _unsayable(entity, terms, kept=kept):
            left_out.append(f"{entity.describe()}: {why}")
            continue
        held = {kind: taken_over(kind, limit) for kind, limit in limits.items()}
        taken, refused = (held, []) if ours else _taken(entity, held)
        left_out += refused
        if taken:
            rules.append(Rule(entity, taken, terms))
            if not kept and (written := terms_written(terms)):
                left_out.append(f"{entity.describe()}: {', '.join(written)}: its limits alone are taken")
    return rules, left_out


def _is_same(entity: Entity, policy: Policy, there: Policy) -> bool:
    return (
        policy.limits[entity] == there.limits.get(entity)
        and policy.terms.get(entity) == there.terms.get(entity)
        and (not isinstance(entity.user, Group) or policy.groups == there.groups)
    )


def _unsayable(entity: Entity, terms: Terms, *, kept: bool) -> str:
    if entity.cap or isinstance(entity.user, Group):
        return "Kafka has no caps and no groups"
    if terms.shadow and not kept:
        return "is in shadow (it only measures): elsewhere it would hold clients"
    if not terms.shared:
        return "each client-id of the prefix has a limit of its own: only Sluice has that"
    if any(isinstance(name, str) and counted_as(name) != name for name in names(entity).values()):
        return "only the beginning of its name is known"
    return ""


def _taken(entity: Entity, limits: Mapping[QuotaKind, float]) -> tuple[dict[QuotaKind, float], list[str]]:
    """Return the limits that Kafka takes, and why it does not take the others."""
    taken: dict[QuotaKind, float] = {}
    refused: list[str] = []
    for kind, limit in limits.items():
        of_entity = {
            dimension: name if isinstance(name, Default) else name.text if isinstance(name, Prefix) else str(name)
            for dimension, name in names(entity).items()
        }
        found = check(Change(of_entity, [(str(kind), float(limit))]))
        if isinstance(found, Refusal):
            refused.append(f"{entity.describe()}: {found}")
        else:
            taken[kind] = float(limit)
    return taken, refused
