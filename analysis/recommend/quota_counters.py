"""The counters of the quotas to size: by the rules of a file, with the proxy's lookup, or by names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.demand.counters import Counters
from analysis.demand.sums import Sums
from analysis.errors import AnalysisError
from analysis.kernel.arrays import Indices
from analysis.kernel.units import Assignment, Unit
from analysis.page.words import counted
from analysis.recommend.choices import Choices
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.names import OTHER
from quotas.policy import Policy, Terms

_EACH_APART: Final = Terms(shared=False)
UNLIMITED: Final = float(2**63)
"""The limit of quotas that are not in force yet."""

Quota = tuple[Entity, QuotaKind]


@dataclass(frozen=True, slots=True)
class QuotaCounters:
    """Quotas and their units: counters on brokers."""

    quotas: tuple[Quota, ...]
    names: tuple[Unit, ...]
    """[unit]."""
    quota_of: Indices
    """[unit]: the number of its quota."""
    units: Counters
    outside: Mapping[QuotaKind, int]
    """The number of clients with use and without a quota, or with a client-id that records do not tell."""

    def outside_words(self) -> list[str]:
        return [
            f"{counted(count, 'client')} {kind.row.doing} under no quota"
            for kind, count in self.outside.items()
            if count
        ]


def by_rules(sums: Sums, policy: Policy, choices: Choices) -> QuotaCounters:
    """Return the counters of the quotas of a policy, including those in shadow, without caps."""
    limits = {entity: limits for entity, limits in policy.limits.items() if not entity.cap}
    apart = {entity: _EACH_APART for entity, terms in policy.terms.items() if not entity.cap and not terms.shared}
    plain = Policy(limits, apart, policy.groups)
    quotas: dict[Quota, int] = {}
    quota_of: dict[tuple[QuotaKind, Unit, Entity], int] = {}
    parts = []
    outside: dict[QuotaKind, int] = {}
    for kind, used in sums.used.items():
        active = np.flatnonzero(used.used > 0)
        held = Assignment.of(plain, kind, [sums.clients[client] for client in active.tolist()])
        unit_of = np.full(len(held.units), -1)
        for number, (unit, rule) in enumerate(zip(held.units, held.rules, strict=True)):
            # OTHER sums up many client-ids, which have different counters.
            is_one = unit.client_id != OTHER or unit.several
            if rule is not None and is_one and choices.chosen(rule):
                unit_of[number] = len(quota_of)
                quota_of[kind, unit, rule] = quotas.setdefault((rule, kind), len(quotas))
        index = np.full(len(sums.clients), -1)
        index[active] = unit_of[held.index]
        parts.append((kind, index))
        outside[kind] = int((index[active] < 0).sum())
    names = tuple(unit for _, unit, _ in quota_of)
    numbers = np.array(list(quota_of.values()), dtype=np.intp)
    return QuotaCounters(tuple(quotas), names, numbers, Counters(parts, len(names)), outside)


def by_name(sums: Sums, per: str, choices: Choices) -> Policy:
    """Return unlimited quotas for each chosen user, client-id or pair. Raises AnalysisError if there is none."""
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    for kind, used in sums.used.items():
        for number in np.flatnonzero(used.used > 0).tolist():
            client = sums.clients[number]
            user = None if per == "client-id" else client.user
            client_id = None if per == "user" else client.client_id
            if "" not in (user, client_id) and client_id != OTHER and choices.chosen(entity := Entity(user, client_id)):
                limits.setdefault(entity, {})[kind] = UNLIMITED
    if not limits:
        said = f"matches --entities {' or '.join(choices.entities)}" if choices.entities else "can be named by a quota"
        raise AnalysisError(f"no client with usage {said}: names are of each {per}, as in user=alice")
    return Policy(dict(sorted(limits.items(), key=lambda each: each[0].describe())))
