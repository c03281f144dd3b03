"""What has to become of quotas: what is desired, what is live, and what was applied last, side by side.

As ``kubectl apply`` does it. What was applied last tells what somebody has taken out of the desired quotas, which is
removed, from what somebody else has made live, which is left; and a limit that nobody has touched since from one that
somebody has, which is a conflict.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from quotas.entities import Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.names import counted_as
from quotas.policy import Policy, Terms
from quotas.stores.edit import number
from quotas.stores.filters import is_of_kafka
from quotas.stores.unlimited import taken_over

_PLAIN = Terms()


class Fate(StrEnum):
    """What becomes of one limit."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    CONFLICT = "conflict"
    """It would be changed or removed, and is not what was applied: only by force."""
    FOREIGN = "foreign"
    """It is live, and none of ours: it is left."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One limit that is not what is desired, or not ours. None: there is none."""

    entity: Entity
    kind: QuotaKind
    fate: Fate
    live: float | None
    desired: float | None
    applied: float | None


@dataclass(frozen=True, slots=True)
class Beyond:
    """What is desired and cannot be applied: Kafka's quotas have no words for it, and it is not live already."""

    entity: Entity
    what: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All differences: those of what is desired in its order, then those of what is live."""

    differences: list[Difference] = field(default_factory=list)
    beyond: list[Beyond] = field(default_factory=list)

    def of(self, *fates: Fate) -> list[Difference]:
        return [each for each in self.differences if each.fate in fates]

    @property
    def to_make(self) -> list[Difference]:
        """What an apply changes without force."""
        return self.of(Fate.ADD, Fate.CHANGE, Fate.REMOVE)

    def differs(self, *, skip_extras: bool = False) -> bool:
        """Whether anything of what is desired is not live; ``skip_extras``: of what can be."""
        return bool(self.beyond and not skip_extras) or any(each.fate is not Fate.FOREIGN for each in self.differences)


def compare(desired: Policy, live: Policy, applied: Policy | None) -> Plan:
    """Return what has to become of ``live``; ``applied`` is None where nobody knows what was applied last.

    Then nothing is removed, and nothing is a conflict.
    """
    beyond = [*_beyond(desired, live)]
    left_out = {each.entity for each in beyond}
    of_ours = Policy() if applied is None else applied
    entities = dict.fromkeys(entity for policy in (desired, live, of_ours) for entity in policy.limits)
    differences = [
        difference
        for entity in entities
        if entity not in left_out
        for difference in _of_entity(entity, desired, live, of_ours, is_known=applied is not None)
    ]
    return Plan(differences, beyond)


def _of_entity(
    entity: Entity, desired: Policy, live: Policy, applied: Policy, *, is_known: bool
) -> Iterator[Difference]:
    wanted, there, before = (policy.limits.get(entity, {}) for policy in (desired, live, applied))
    if not is_of_kafka(entity):
        before = {}  # never was one applied
    for kind in dict.fromkeys([*wanted, *there, *before]):
        want, have, had = (_float(kind, limits.get(kind)) for limits in (wanted, there, before))
        if want == have:
            continue
        if want is None and had is None:
            fate = Fate.FOREIGN
        elif is_known and have != had:
            fate = Fate.CONFLICT
        elif have is None:
            fate = Fate.ADD
        else:
            fate = Fate.REMOVE if want is None else Fate.CHANGE
        if want is not None or have is not None:
            yield Difference(entity, kind, fate, have, want, had)


def _float(kind: QuotaKind, limit: float | None) -> float | None:
    return None if limit is None else taken_over(kind, limit)


def _beyond(desired: Policy, live: Policy) -> Iterator[Beyond]:
    for entity, limits in desired.limits.items():
        terms, live_terms = desired.terms.get(entity, _PLAIN), live.terms.get(entity, _PLAIN)
        if is_of_kafka(entity):
            if entity not in live.limits and any(map(_is_cut, (entity.user, entity.client_id))):
                yield Beyond(entity, "a name of more than 256 bytes, of which only the beginning is known")
            elif not all(limit > 0 and number(float(limit)) for limit in limits.values()):
                yield Beyond(entity, "a limit that a quota file, and so the record, cannot hold")
            elif terms != live_terms:
                yield Beyond(entity, _terms(terms) or f"no {_terms(live_terms)}, which is live")
            continue
        same = {kind: float(limit) for kind, limit in limits.items()} == {
            kind: float(limit) for kind, limit in live.limits.get(entity, {}).items()
        }
        if isinstance(entity.user, Group):
            name = entity.user.name
            same = same and {*desired.groups[name]} == {*live.groups.get(name, ())}
        if not same or terms != live_terms:
            kinds = (entity.cap, "a cap"), (isinstance(entity.user, Group), "a group of users")
            several = (isinstance(entity.client_id, Prefix), "a prefix of client-ids")
            yield Beyond(entity, ", ".join(what for is_one, what in (*kinds, several) if is_one))


def _is_cut(name: Name) -> bool:
    return isinstance(name, str) and counted_as(name) != name


def _terms(terms: Terms) -> str:
    """Return the names of what a rule says beside its limits."""
    said = {
        "mode: shadow": terms.shadow,
        "proposed": terms.proposed,
        "burst": terms.burst_ms is not None,
        "max_delay": terms.max_delay_ms is not None,
    }
    return ", ".join(name for name, is_said in said.items() if is_said)


def now_applied(desired: Policy, live: Policy, applied: Policy | None, refused: Collection[Entity]) -> Policy:
    """Return what is applied after a plan was carried out, but for what was ``refused`` or left out: that is what it
    was before, as far as it is live still.
    """
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    for entity, of_entity in desired.limits.items():
        if is_of_kafka(entity) and entity not in refused:
            limits[entity] = {kind: float(limit) for kind, limit in of_entity.items()}
    before = {} if applied is None else applied.limits
    for entity in refused:
        kept = {kind: limit for kind, limit in before.get(entity, {}).items() if kind in live.limits.get(entity, {})}
        if kept:
            limits[entity] = kept
    return Policy(limits)
