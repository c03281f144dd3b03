"""The changes that bring quotas from somewhere else into a store."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proxy.manage.altering import EntityChange
from proxy.manage.for_kafka import for_kafka
from proxy.manage.wording import terms_written
from quotas.entities import Entity
from quotas.policy import Policy
from quotas.stores.filters import is_of_kafka
from quotas.stores.unlimited import taken_over


@dataclass(frozen=True, slots=True)
class Import:
    """The changes to make, and messages about quotas that cannot be imported."""

    wanted: Sequence[EntityChange]
    left_out: list[str]


def plan(coming: Policy, there: Policy, *, replace: bool, unread: Collection[Entity | None] = ()) -> Import:
    """Return the changes that add ``coming`` to the quotas in ``there``, or (``replace``) make them equal to it.

    Only limits can be altered: the store keeps everything else, and the entities whose rules are left out. Entities in
    ``unread`` could not be read completely from the source: they keep what they have.
    """
    quotas, left_out = for_kafka(coming, there)
    wanted: list[EntityChange] = []
    for quota in quotas:
        entity = quota.entity
        before = {kind: taken_over(kind, limit) for kind, limit in there.limits.get(entity, {}).items()}
        limits: dict[str, float | None] = {str(k): v for k, v in quota.limits.items() if before.get(k) != v}
        if replace and entity not in unread:
            limits.update((str(kind), None) for kind in before if kind not in coming.limits[entity])
        if limits:
            wanted.append(EntityChange(entity, limits))
        if (kept := there.terms.get(entity, quota.terms)) != quota.terms:
            left_out.append(f"{entity.describe()}: keeps {', '.join(terms_written(kept))} of the store")
    for entity, limits_there in there.limits.items() if replace else ():
        if entity in coming.limits or not limits_there:
            continue
        if entity in unread:
            left_out.append(f"{entity.describe()}: stays: its quotas in the source could not be read")
            continue
        if is_of_kafka(entity):
            wanted.append(EntityChange(entity, {str(kind): None for kind in limits_there}))
        else:
            left_out.append(f"{entity.describe()}: stays: remove groups, prefixes and caps by hand")
    return Import(wanted, left_out)
