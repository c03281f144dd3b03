"""The changes that bring quotas from somewhere else into a store."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proxy.manage.altering import Wanted
from proxy.manage.for_kafka import for_kafka
from proxy.manage.wording import terms_written
from quotas.entities import Entity
from quotas.policy import Policy
from quotas.stores.filters import is_of_kafka
from quotas.stores.unlimited import taken_over


@dataclass(frozen=True, slots=True)
class Import:
    """The alterations to make, and in words what cannot be taken."""

    wanted: Sequence[Wanted]
    left_out: list[str]


def plan(coming: Policy, there: Policy, *, replace: bool, unread: Collection[Entity | None] = ()) -> Import:
    """Return what makes ``there`` hold what is ``coming``: besides what else it holds, or (``replace``) instead of it.

    Only limits can be altered. The store keeps everything else it has, and every entity whose rule was left out. The
    source could not be read completely for those in ``unread``: they keep what they have.
    """
    quotas, left_out = for_kafka(coming, there)
    wanted: list[Wanted] = []
    for quota in quotas:
        entity = quota.entity
        before = {kind: taken_over(kind, limit) for kind, limit in there.limits.get(entity, {}).items()}
        limits: dict[str, float | None] = {str(k): v for k, v in quota.limits.items() if before.get(k) != v}
        if replace and entity not in unread:
            limits.update((str(kind), None) for kind in before if kind not in coming.limits[entity])
        if limits:
            wanted.append(Wanted(entity, limits))
        if (kept := there.terms.get(entity, quota.terms)) != quota.terms:
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
