"""What it takes to bring quotas from somewhere else into a store."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proxy.manage.altering import Wanted
from proxy.manage.formats.rules import as_rules
from proxy.manage.wording import terms_written
from quotas.entities import Entity, Prefix
from quotas.policy import Policy
from quotas.stores.filters import is_of_kafka
from quotas.stores.unlimited import taken_over


@dataclass(frozen=True, slots=True)
class Import:
    """What is to be altered, and what cannot be, in words."""

    wanted: Sequence[Wanted]
    left_out: list[str]


def plan(coming: Policy, there: Policy, *, replace: bool, unread: Collection[Entity | None] = ()) -> Import:
    """Return what makes ``there`` hold what is ``coming``: besides what else it holds, or (``replace``) instead of it.

    Only limits can be altered. What is in the store and has more to it than that stays, and so does what a rule that
    was left out is for. What the source says of those in ``unread`` is not known whole: they keep what they have.
    """
    rules, left_out = as_rules(coming, ours=False, there=there)
    wanted: list[Wanted] = []
    for rule in rules:
        entity = rule.entity
        before = {kind: taken_over(kind, limit) for kind, limit in there.limits.get(entity, {}).items()}
        if isinstance(entity.client_id, Prefix):
            left_out.append(f"{entity.describe()}: Kafka has no prefixes of client-ids")
            continue
        limits: dict[str, float | None] = {str(k): v for k, v in rule.limits.items() if before.get(k) != v}
        if replace and entity not in unread:
            limits.update((str(kind), None) for kind in before if kind not in coming.limits[entity])
        if limits:
            wanted.append(Wanted(entity, limits))
        if (kept := there.terms.get(entity, rule.terms)) != rule.terms:
            left_out.append(f"{entity.describe()}: keeps {', '.join(terms_written(kept))} that it has in the store")
    for entity, limits_there in there.limits.items() if replace else ():
        if entity in coming.limits or not limits_there:
            continue
        if entity in unread:
            left_out.append(f"{entity.describe()}: stays: what the source says of it could not be read")
            continue
        if is_of_kafka(entity):
            wanted.append(Wanted(entity, {str(kind): None for kind in limits_there}))
        else:
            left_out.append(f"{entity.describe()}: stays: groups, prefixes and caps are removed by hand")
    return Import(wanted, left_out)
