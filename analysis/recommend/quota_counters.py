"""The counters that quotas are sized for: by the rules of a file, looked up as the proxy does, or by names."""

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
from analysis.recommend.choices import Choices, Per
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
    """Quotas, and their counters on brokers: units."""

    quotas: tuple[Quota, ...]
    names: tuple[Unit, ...]
    """[unit]."""
    quota_of: Indices
    """[unit]: the number of its quota."""
    units: Counters
    outside: Mapping[QuotaKind, int]
    """How many clients with use are in none: no quota holds them, or many client-ids are recorded as one."""

    def outside_words(self) -> list[str]:
        return [
            f"{counted(count, 'client')} {kind.row.doing} under no quota"
            for kind, count in self.outside.items()
            if count
        ]


def by_rules(sums: Sums, policy: Policy, choices: Choices) -> QuotaCounters:
    """Return the counters of the quotas of a policy, those in shadow too; caps have none of them."""
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
            # The use of many client-ids that records have as one is no one counter's.
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


def by_name(sums: Sums, per: Per, choices: Choices) -> Policy:
    """Return quotas without a limit for each user, client-id or pair that a quota can name, and that is wanted.

    Raises AnalysisError where none is.
    """
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    for kind, used in sums.used.items():
        for number in np.flatnonzero(used.used > 0).tolist():
            client = sums.clients[number]
            user = None if per is Per.CLIENT_ID else client.user
            client_id = None if per is Per.USER else client.client_id
            if "" not in (user, client_id) and client_id != OTHER and choices.chosen(entity := Entity(user, client_id)):
                limits.setdefault(entity, {})[kind] = UNLIMITED
    if not limits:
        said = f"matches --entities {' or '.join(choices.entities)}" if choices.entities else "can be named by a quota"
        raise AnalysisError(f"nobody who used anything {said}: names are of each {per}, as in user=alice")
    return Policy(dict(sorted(limits.items(), key=lambda each: each[0].describe())))
