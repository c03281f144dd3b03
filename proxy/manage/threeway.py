"""Three-way comparison of quotas: desired, live and last applied.

As in ``kubectl apply``, the last applied quotas tell apart a limit taken out of the desired quotas, which is removed,
from one that someone else has added, which stays; and a limit unchanged since from one that someone else has changed,
which is a conflict.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from proxy.manage.wording import beyond_kafka, has_cut_name, terms_written
from quotas.entities import Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import number
from quotas.stores.filters import is_of_kafka
from quotas.stores.unlimited import taken_over

_PLAIN = Terms()


class Action(StrEnum):
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    CONFLICT = "conflict"
    """It would be changed or removed, but is not what was applied: changed only with force."""
    FOREIGN = "foreign"
    """It is live but not managed by the desired quotas: it stays."""


class Difference(NamedTuple):
    """One limit that differs from the desired one, or is not managed. None: no limit."""

    entity: Entity
    kind: QuotaKind
    action: Action
    live: float | None
    desired: float | None
    applied: float | None


class Unsupported(NamedTuple):
    """A desired rule that cannot be applied: Kafka has no such quota, and it is not live already."""

    entity: Entity
    what: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All differences: first desired rules in their order, then live ones."""

    differences: list[Difference]
    beyond: list[Unsupported]

    def of(self, *actions: Action) -> list[Difference]:
        return [each for each in self.differences if each.action in actions]

    @property
    def to_make(self) -> list[Difference]:
        """The changes that an apply makes without force."""
        return self.of(Action.ADD, Action.CHANGE, Action.REMOVE)

    def differs(self, *, skip_extras: bool = False) -> bool:
        """Whether any desired rule is not live; ``skip_extras``: among those that can be applied."""
        return bool(self.beyond and not skip_extras) or any(
            each.action is not Action.FOREIGN for each in self.differences
        )


def compare(desired: Policy, live: Policy, applied: Policy | None) -> Plan:
    """Return the changes for ``live``; ``applied`` is None if there is no record.

    Without a record nothing is removed, and nothing is a conflict.
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
        before = {}  # Kafka never had it
    for kind in dict.fromkeys([*wanted, *there, *before]):
        want, have, had = (
            taken_over(kind, limits[kind]) if kind in limits else None for limits in (wanted, there, before)
        )
        if want == have:
            continue
        if want is None and had is None:
            action = Action.FOREIGN
        elif is_known and have != had:
            action = Action.CONFLICT
        elif have is None:
            action = Action.ADD
        else:
            action = Action.REMOVE if want is None else Action.CHANGE
        if want is not None or have is not None:
            yield Difference(entity, kind, action, have, want, had)


def _beyond(desired: Policy, live: Policy) -> Iterator[Unsupported]:
    for entity, limits in desired.limits.items():
        terms, live_terms = desired.terms.get(entity, _PLAIN), live.terms.get(entity, _PLAIN)
        if what := beyond_kafka(entity):
            same = limits == live.limits.get(entity, {}) and terms == live_terms
            if isinstance(entity.user, Group):
                name = entity.user.name
                same = same and {*desired.groups[name]} == {*live.groups.get(name, ())}
            if not same:
                yield Unsupported(entity, what)
        elif entity not in live.limits and has_cut_name(entity):
            yield Unsupported(entity, "a name of more than 256 bytes, of which only the beginning is known")
        elif not all(limit > 0 and number(float(limit)) for limit in limits.values()):
            yield Unsupported(entity, "a limit that a quota file, and so the record, cannot hold")
        elif terms != live_terms:
            yield Unsupported(entity, _terms(terms) or f"no {_terms(live_terms)}, which is live")


def _terms(terms: Terms) -> str:
    said = terms_written(terms).items()
    return ", ".join(f"{name}: {value}" if name in ("mode", "scope") else name for name, value in said)


def now_applied(desired: Policy, live: Policy, applied: Policy | None, refused: Collection[Entity]) -> Policy:
    """Return the applied quotas after a plan was carried out. Those in ``refused`` stay as they were applied before, as
    far as they are still live.
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
