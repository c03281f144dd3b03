"""Assigns clients to counters of a scenario, and leaves out clients under rules that are not replayed."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.demand.sums import Sums
from analysis.kernel.units import REPLAYED, Assignment, ClientOnBroker, caps_in_force, not_replayed
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms

_PLAIN: Final = Terms()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Proposed quotas, by the name of their file."""

    name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Clients that are left out of the result, and the reason."""

    scenario: str
    kind: str
    clients: tuple[str, ...]
    reason: str


def rules_not_replayed(policy: Policy) -> dict[Entity, list[str]]:
    """Return the rules with terms or kinds that are not replayed, and these, in words of quota files."""
    found: dict[Entity, list[str]] = {}
    for entity, limits in policy.limits.items():
        of_rule = policy.terms.get(entity, _PLAIN)
        words = not_replayed(of_rule)
        if entity.cap:
            words += [] if of_rule.shadow else ["caps"]
        else:
            words += [kind.value for kind in limits if kind not in REPLAYED]
        if words:
            found[entity] = words
    return found


def assign(sums: Sums, scenario: Scenario, kind: QuotaKind) -> tuple[Assignment, list[LeftOut]]:
    """Return the counters of the clients with use, and the clients left out; all others have index -1."""
    active = np.flatnonzero(sums.used[kind].active)
    clients = [sums.clients[client] for client in active.tolist()]
    assignment = Assignment.of(scenario.policy, kind, clients)
    reasons = _reasons(scenario.policy, kind, clients, assignment)
    by_reason: dict[str, list[ClientOnBroker]] = {}
    for client, reason in zip(clients, reasons, strict=True):
        if reason:
            by_reason.setdefault(reason, []).append(client)
    if by_reason:
        known = np.array([not reason for reason in reasons], dtype=bool)
        active = active[known]
        assignment = Assignment.of(scenario.policy, kind, [sums.clients[client] for client in active.tolist()])
    index = np.full(len(sums.clients), -1)
    index[active] = assignment.index
    left_out = []
    for reason, of in by_reason.items():
        names = tuple(sorted({f"{each.user} / {each.client_id}" for each in of}))
        left_out.append(LeftOut(scenario.name, kind.value, names, reason))
    return Assignment(assignment.units, assignment.rules, assignment.limits, index), left_out


def _reasons(policy: Policy, kind: QuotaKind, clients: list[ClientOnBroker], assignment: Assignment) -> list[str]:
    """Return [client] the reason to leave it out, or ""."""
    said = {entity: not_replayed(of) for entity, of in policy.terms.items()}
    of_rule = ["" if rule is None else _says(rule, said.get(rule, [])) for rule in assignment.rules]
    reasons = [of_rule[unit] for unit in assignment.index.tolist()]
    if policy.book(kind, cap=True).limits:
        caps = (caps_in_force(policy, kind, client) for client in clients)
        reasons = [
            reason or (f"{first[0].describe()} holds besides, and caps are not replayed" if first else "")
            for reason, first in zip(reasons, caps, strict=True)
        ]
    return reasons


def _says(rule: Entity, words: list[str]) -> str:
    return f"{' and '.join(words)} of {rule.describe()} is not replayed" if words else ""
