"""The counters that a quota is sized for, by the rules of a file, asked as the proxy asks."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from analysis.demand.counted import Counted
from analysis.demand.recording import Recording
from analysis.errors import AnalysisError
from analysis.kernel.demand import Indices
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """The counters that are looked at, [unit] each."""

    kinds: tuple[QuotaKind, ...]
    counters: tuple[Unit, ...]
    holders: tuple[Entity, ...]
    """The entity of each one's quota."""
    units: Counted
    beyond: Mapping[QuotaKind, int]
    """How many clients with use are in none of them: no quota holds them, or nobody knows which."""

    def outside(self) -> list[str]:
        """Return in words who is in none."""
        return [
            f"{counted(count, 'client')} {kind.row.doing} under no quota"
            for kind, count in self.beyond.items()
            if count
        ]

    def by_quota(self) -> tuple[Indices, int]:
        """Return [unit] a number for the quota, of one kind, that it is a counter of, and how many there are."""
        numbers: dict[tuple[QuotaKind, Entity], int] = {}
        keys = zip(self.kinds, self.holders, strict=True)
        index = [numbers.setdefault(key, len(numbers)) for key in keys]
        return np.array(index, dtype=np.intp), len(numbers)


def by_rules(recording: Recording, policy: Policy, choices: Choices) -> Wanted:
    """Return the counters that the quotas of a policy have, those in shadow too; caps have none of them."""
    quotas = {entity: limits for entity, limits in policy.limits.items() if not entity.cap}
    apart = {entity: _EACH_APART for entity, terms in policy.terms.items() if not entity.cap and not terms.shared}
    plain = Policy(quotas, apart, policy.groups)
    numbers: dict[tuple[QuotaKind, Unit, Entity], int] = {}
    parts = []
    beyond: dict[QuotaKind, int] = {}
    for kind, used in recording.used.items():
        active = np.flatnonzero(used.used > 0)
        held = Assignment.of(plain, kind, [recording.clients[client] for client in active.tolist()])
        of_unit = np.full(len(held.units), -1)
        for number, (unit, rule) in enumerate(zip(held.units, held.rules, strict=True)):
            # The use of many client-ids that records have as one is no one counter's.
            is_one = unit.client_id != OTHER or unit.several
            if rule is not None and is_one and matches(rule.describe(), choices):
                of_unit[number] = numbers.setdefault((kind, unit, rule), len(numbers))
        index = np.full(len(recording.clients), -1)
        index[active] = of_unit[held.index]
        parts.append((kind, index))
        beyond[kind] = int((index[active] < 0).sum())
    kinds, counters, holders = zip(*numbers, strict=True) if numbers else ((), (), ())
    return Wanted(kinds, counters, holders, Counted(parts, len(numbers)), beyond)


def matches(name: str, choices: Choices) -> bool:
    """Whether ``--entities`` takes a name."""
    return not choices.entities or any(fnmatchcase(name, pattern) for pattern in choices.entities)


def by_name(recording: Recording, per: Per, choices: Choices) -> Policy:
    """Return quotas without a limit for each user, client-id or pair that a quota can name, and that is wanted.

    Raises AnalysisError where none is.
    """
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    for kind, used in recording.used.items():
        for client in np.flatnonzero(used.used > 0).tolist():
            user, client_id = recording.clients[client].user, recording.clients[client].client_id
            names = (None if per is Per.CLIENT_ID else user, None if per is Per.USER else client_id)
            if "" in names or names[1] == OTHER or not matches(Entity(*names).describe(), choices):
                continue
            limits.setdefault(Entity(*names), {})[kind] = UNLIMITED
    if not limits:
        said = (
            f" matches --entities {' or '.join(choices.entities)}" if choices.entities else " can be named by a quota"
        )
        raise AnalysisError(f"nobody who used anything{said}: names are of each {per}, as in user=alice")
    return Policy(dict(sorted(limits.items(), key=lambda each: each[0].describe())))
