"""Which quotas are looked at, whose clients they hold, and who is left out because something is not replayed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.demand import Bools
from analysis.kernel.units import Assignment, Client
from analysis.replay import terms as replay_terms
from analysis.replay.recording import REFUSING, Recording
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms

_PLAIN: Final = Terms()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Quotas to look at, and what to call them."""

    name: str
    policy: Policy
    unknown: frozenset[Entity] = frozenset()
    """Quotas with words that are not replayed: whom they hold is left out."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Clients of which the answer says nothing by name, and why."""

    scenario: str
    kind: str
    clients: tuple[str, ...]
    reason: str


def not_replayed(policy: Policy) -> dict[Entity, list[str]]:
    """Return the quotas that say something which no replay takes into account, and what: words of quota files."""
    found: dict[Entity, list[str]] = {}
    for entity, limits in policy.limits.items():
        words = [kind.value for kind in limits if kind in REFUSING]
        if entity.cap and words:
            found[entity] = words
    for entity, terms in policy.terms.items():
        if words := replay_terms.not_replayed(terms):
            found.setdefault(entity, []).extend(words)
    return found


def assign(recording: Recording, scenario: Scenario, kind: QuotaKind) -> Assignment:
    """Return who shares a counter, among those who used any; the others have index -1."""
    active = np.flatnonzero(recording.used[kind].rows)
    policy = scenario.policy
    assignment = Assignment.of(policy, kind, (recording.clients[client] for client in active.tolist()))
    unknown = _held_otherwise(assignment, scenario, kind)
    if unknown.any():
        active = active[~unknown]
        assignment = Assignment.of(policy, kind, (recording.clients[client] for client in active.tolist()))
    index = np.full(len(recording.clients), -1)
    index[active] = assignment.index
    caps = np.full((len(recording.clients), assignment.caps.shape[1]), -1)
    if caps.size:
        caps[active] = assignment.caps
    return Assignment(assignment.units, assignment.rules, assignment.limits, index, caps)


def _held_otherwise(assignment: Assignment, scenario: Scenario, kind: QuotaKind) -> Bools:
    """Return [client] whether something holds for it that is not replayed."""
    unknown = np.array([_is_unknown(rule, scenario, kind) for rule in assignment.rules], dtype=bool)
    found = unknown[assignment.index]
    for place in assignment.caps.T:
        found |= (place >= 0) & unknown[place]
    return np.asarray(found)


def _is_unknown(rule: Entity | None, scenario: Scenario, kind: QuotaKind) -> bool:
    """Return whether a rule has, of a kind, what is not replayed."""
    if rule is None or rule not in scenario.unknown:
        return False
    return not rule.cap or kind in REFUSING or bool(replay_terms.not_replayed(scenario.policy.terms.get(rule, _PLAIN)))


def left_out(recording: Recording, scenario: Scenario, kind: QuotaKind) -> Iterator[LeftOut]:
    """Yield whom quotas hold that are not replayed, by these quotas."""
    active = np.flatnonzero(recording.used[kind].rows)
    clients = [recording.clients[client] for client in active.tolist()]
    assignment = Assignment.of(scenario.policy, kind, clients)
    by_rule: dict[str, list[int]] = {}
    for client in np.flatnonzero(_held_otherwise(assignment, scenario, kind)).tolist():
        mine = [assignment.index[client], *assignment.caps[client : client + 1].ravel()]
        rules = [assignment.rules[unit] for unit in mine if unit >= 0]
        [first, *_] = [rule for rule in rules if rule is not None and _is_unknown(rule, scenario, kind)]
        by_rule.setdefault(first.describe(), []).append(client)
    for rule_, of_rule in by_rule.items():
        reason = f"{rule_} says what is not replayed"
        yield LeftOut(scenario.name, kind.value, named(clients[client] for client in of_rule), reason)


def named(clients: Iterable[Client]) -> tuple[str, ...]:
    """Return ``user / client-id`` of clients, each once."""
    return tuple(sorted({f"{each.user} / {each.client_id}" for each in clients}))
