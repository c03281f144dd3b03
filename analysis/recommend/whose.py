"""Whose use a quota is sized for: the counters that each quota has, and who is in them.

By the rules of the present quotas, asked as the proxy asks them; by the rules that records name; or by names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

import numpy as np

from analysis.errors import AnalysisError
from analysis.kernel.demand import Indices
from analysis.kernel.units import Assignment, Client, Rule, Unit, read_rule, recorded_unit
from analysis.page.words import counted
from analysis.recommend.choices import Choices, Per
from analysis.replay.gathering import Units
from analysis.replay.recording import Recording
from quotas.entities import Entity, Name
from quotas.kinds import QuotaKind, Whose
from quotas.names import OTHER
from quotas.policy import Policy, Terms

Holder = tuple[Name, Name, Name]
"""(user, client-id, address) that a quota is for; "" in the place of a name that was never sent, None where it plays no
role."""

_EACH_APART: Final = Terms(shared=False)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The counters that are looked at, [unit] each."""

    kinds: tuple[QuotaKind, ...]
    counters: tuple[Unit, ...]
    holders: tuple[Holder, ...]
    units: Units
    beyond: Mapping[QuotaKind, int]
    """How many clients with use are in none of them: no quota holds them, or nobody knows which."""
    from_records: bool = False
    """Whether records alone say whom a quota is for: not who else is in a group, nor a prefix's terms."""

    @classmethod
    def of(cls, recording: Recording, found: Mapping[QuotaKind, Mapping[int, tuple[Unit, Holder]]]) -> "Wanted":
        """Take [kind][client] the counter of each client that is wanted, and whom its quota is for."""
        numbers: dict[tuple[QuotaKind, Unit, Holder], int] = {}
        unit_of: dict[QuotaKind, Indices] = {}
        beyond: dict[QuotaKind, int] = {}
        for kind, of_kind in found.items():
            unit_of[kind] = np.full(len(recording.clients), -1)
            for client, (unit, holder) in of_kind.items():
                unit_of[kind][client] = numbers.setdefault((kind, unit, holder), len(numbers))
            beyond[kind] = len(_active(recording, kind)) - len(of_kind)
        kinds, counters, holders = zip(*numbers, strict=True) if numbers else ((), (), ())
        return cls(kinds, counters, holders, Units(unit_of, len(numbers)), beyond)

    def outside(self) -> list[str]:
        """Return in words who is in none."""
        named = {Whose.CLIENT: ("client", "clients"), Whose.IP: ("address", "addresses")}
        return [
            f"{counted(count, *named[kind.row.whose])} {kind.row.doing} under no quota"
            for kind, count in self.beyond.items()
            if count
        ]

    def by_quota(self) -> tuple[Indices, int]:
        """Return [unit] a number for the quota, of one kind, that it is a counter of, and how many there are."""
        numbers: dict[tuple[QuotaKind, Holder], int] = {}
        keys = zip(self.kinds, self.holders, strict=True)
        index = [numbers.setdefault(key, len(numbers)) for key in keys]
        return np.array(index, dtype=np.intp), len(numbers)


def by_name(recording: Recording, choices: Choices) -> Wanted:
    """Return a counter for each user, client-id or pair. Raises AnalysisError where none is wanted.

    None for addresses: whoever wants a quota for some has one for them.
    """
    per = choices.per or Per.USER
    of_user, of_client_id = per is not Per.CLIENT_ID, per is not Per.USER

    def assigned(kind: QuotaKind, chosen: Sequence[int]) -> Iterator[tuple[Unit, Holder] | None]:
        clients = [recording.clients[client] for client in chosen]
        if kind.row.whose is Whose.IP:
            yield from (None for _ in clients)
            return
        each = Assignment.each(clients, kind, user=of_user, client_id=of_client_id)
        for client, number in zip(clients, each.index.tolist(), strict=True):
            holder = (client.user if of_user else None, client.client_id if of_client_id else None, None)
            is_one = not choices.entities or matches(per.of(client.user, client.client_id), choices)
            yield (each.units[number], holder) if is_one else None

    wanted = _wanted(recording, assigned)
    if not wanted.counters:
        patterns = " or ".join(choices.entities)
        raise AnalysisError(f"nobody who used anything matches --entities {patterns}: names are of each {per}")
    return wanted


def by_rules(recording: Recording, policy: Policy, choices: Choices) -> Wanted:
    """Return the counters that the quotas of a policy have, those in shadow too; caps have none of them."""
    quotas = {entity: limits for entity, limits in policy.limits.items() if not entity.cap}
    apart = {entity: _EACH_APART for entity, terms in policy.terms.items() if not entity.cap and not terms.shared}
    plain = Policy(quotas, apart, policy.groups)

    def assigned(kind: QuotaKind, chosen: Sequence[int]) -> Iterator[tuple[Unit, Holder] | None]:
        held = Assignment.of(plain, kind, [recording.clients[client] for client in chosen])
        for number in held.index.tolist():
            yield _of_rule(held.units[number], held.rules[number], choices)

    return _wanted(recording, assigned)


def by_records(recording: Recording, choices: Choices) -> Wanted:
    """Return the counters of the rules that records name. Who was under several is in none."""

    def assigned(kind: QuotaKind, chosen: Sequence[int]) -> Iterator[tuple[Unit, Holder] | None]:
        for client in chosen:
            yield _as_recorded(recording.clients[client], recording.used[kind].rules[client], kind, choices)

    return replace(_wanted(recording, assigned), from_records=True)


def were_under_rules(recording: Recording) -> bool:
    """Whether records name any quota of clients."""
    of_kinds = (used.rules for kind, used in recording.used.items() if kind.row.whose is Whose.CLIENT)
    return any(rule for rules in of_kinds for rule in rules)


def matches(name: str, choices: Choices) -> bool:
    """Whether ``--entities`` takes a name."""
    return not choices.entities or any(fnmatchcase(name, pattern) for pattern in choices.entities)


def _wanted(
    recording: Recording, assigned: Callable[[QuotaKind, Sequence[int]], Iterable[tuple[Unit, Holder] | None]]
) -> Wanted:
    found = {}
    for kind in recording.used:
        chosen = _active(recording, kind)
        each = zip(chosen, assigned(kind, chosen), strict=True)
        found[kind] = {client: mine for client, mine in each if mine is not None}
        if kind.row.whose is Whose.IP and not found[kind]:
            del found[kind]  # that addresses have no quota is the rule
    return Wanted.of(recording, found)


def _active(recording: Recording, kind: QuotaKind) -> list[int]:
    return [int(client) for client in np.flatnonzero(recording.used[kind].sent_bytes > 0)]


def _as_recorded(client: Client, rule: str | None, kind: QuotaKind, choices: Choices) -> tuple[Unit, Holder] | None:
    if not rule:
        return None
    named = _rule(rule)
    unit = None if named is None else recorded_unit(client, named.entity, kind, shared=named.shared)
    return None if unit is None or named is None else _of_rule(unit, named.entity, choices)


@cache
def _rule(text: str) -> Rule | None:
    try:
        return read_rule(text)
    except ValueError:  # of a later version
        return None


def _of_rule(unit: Unit, rule: Entity | None, choices: Choices) -> tuple[Unit, Holder] | None:
    """Leave out what is no one counter: the use of many client-ids that records have as one."""
    if rule is None or rule.cap or (unit.client_id == OTHER and not unit.several):
        return None
    if choices.entities and not matches(rule.describe(), choices):
        return None
    return unit, (rule.user, rule.client_id, rule.ip)
