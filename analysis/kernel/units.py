"""Whose use counts together: from the clients of usage records to the counters of a policy.

A unit is one counter of one proxy instance on one broker; several clients may share it, and its limit. Which they do
depends on the quotas: under proposed ones the policy says it (``Assignment.of``), for recorded ones the rule that
stands in the record does (``recorded_unit``).
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import METERED, QuotaKind
from quotas.policy import PLAIN, Policy
from quotas.precedence import find, level_of


class Client(NamedTuple):
    """Who is in one row of usage records, apart from the listener: counters do not know it."""

    instance: str
    broker: int
    user: str
    client_id: str


class Unit(NamedTuple):
    """One counter; user and client_id are its tags, "" where that part plays no role."""

    instance: str
    broker: int
    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Where usage records hold what one quota kind is about."""

    used: str
    """What is charged."""
    per_used: float
    """How many units of the limit one of it is."""
    requests: str
    throttle_ms: str | None
    throttled: str | None
    muted_ms: str | None
    limit: str | None
    rule: str | None


def _of(kind: QuotaKind) -> Columns:
    names = kind.row.columns
    return Columns(
        *(names.used, kind.row.unit.per_used, names.requests),
        *(names.throttle_ms, names.throttled, names.muted_ms, names.limit, names.rule),
    )


COLUMNS: Final[Mapping[QuotaKind, Columns]] = {kind: _of(kind) for kind in METERED}
"""Not all of them can be replayed (``analysis.replay.recording``): of controller mutations, records do not say what was
refused; and they have no connections by address."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which unit each client belongs to, and what holds for each unit."""

    units: tuple[Unit, ...]
    rules: tuple[Entity | None, ...]
    """[unit]: the quota whose limit holds; None: unlimited."""
    limits: Floats
    """[unit], infinite without one; in the unit of the kind, on one broker."""
    index: Indices
    """[client]: the unit of each, as ``analysis.kernel.demand.by_unit`` takes it."""

    @classmethod
    def of(cls, policy: Policy, kind: QuotaKind, clients: Iterable[Client]) -> "Assignment":
        """Return who shares a counter of ``kind`` under ``policy``, put in force where none was before."""
        table = policy.table(kind)
        levels = 0
        for configured in table:
            levels |= level_of(configured)
        terms = policy.terms_of(kind)
        found = [(client, *find(policy, kind, levels, client.user, client.client_id)) for client in clients]
        units, index = _numbered((client.instance, client.broker, *counter[:2]) for client, _, counter in found)
        by_unit = {(each.instance, each.broker, *counter[:2]): key for each, key, counter in found}
        winners = [by_unit[unit] for unit in units]
        keys = [None if key is None or terms.get(key, PLAIN).shadow else key for key in winners]
        return cls(
            units,
            tuple(None if key is None else policy.client(key) for key in keys),
            np.array([np.inf if key is None else table[key] for key in keys]),
            index,
        )

    @classmethod
    def each(cls, clients: Iterable[Client], *, user: bool, client_id: bool) -> "Assignment":
        """Return one unlimited unit for each user, each client-id or each pair: for whom quotas are to be found."""
        units, index = _numbered(
            client._replace(user=client.user if user else "", client_id=client.client_id if client_id else "")
            for client in clients
        )
        return cls(units, (None,) * len(units), np.full(len(units), np.inf), index)


def _numbered(units: Iterable[tuple[str, int, str, str]]) -> tuple[tuple[Unit, ...], Indices]:
    numbers: dict[tuple[str, int, str, str], int] = {}
    index = [numbers.setdefault(unit, len(numbers)) for unit in units]
    return tuple(Unit(*unit) for unit in numbers), np.array(index, dtype=np.intp)


def recorded_unit(client: Client, rule: Entity | None) -> Unit | None:
    """Return the counter that a client was measured by when ``rule`` held for it; None: it was unlimited."""
    if rule is None:
        return None
    user = client.user if rule.user is not None else ""
    client_id = client.client_id if rule.client_id is not None else ""
    if isinstance(rule.user, Group):
        user = f"group:{rule.user.name}"
    if isinstance(rule.client_id, Prefix):  # that each of its clients has a counter of its own, no record says
        client_id = f"{rule.client_id.text}*"
    return Unit(client.instance, client.broker, user, client_id)


_DIMENSIONS: Final = {
    "user": "user",
    "user-group": "user",
    "client-id": "client_id",
    "client-id-prefix": "client_id",
    "ip": "ip",
}
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_PART: Final = re.compile(rf"(user-group|client-id-prefix|user|client-id|ip)=({_QUOTED}|<default>|[^\s<>,=\"'\\]+)")


def parse_rule(text: str) -> Entity:
    """Return the entity that ``Entity.describe`` wrote as ``text``, as records and metrics name rules.

    Raises ValueError for anything else.
    """
    names: dict[str, Name] = {}
    at = 0
    while True:
        part = _PART.match(text, at)
        if part is None or _DIMENSIONS[part[1]] in names:
            raise ValueError(f"{text!r} does not name a quota; one is written like user=alice, client-id=<default>")
        name = _name(part[2])
        if part[1] == "user-group":
            name = Group(str(name))
        elif part[1] == "client-id-prefix":
            name = Prefix(str(name))
        names[_DIMENSIONS[part[1]]] = name
        at = part.end()
        if at == len(text):
            return Entity(names.get("user"), names.get("client_id"), names.get("ip"))
        if not text.startswith(", ", at):
            raise ValueError(f"{text!r} goes on after a name, at {text[at:]!r}; parts are separated by a comma")
        at += 2


def _name(written: str) -> Name:
    if written == Default.DEFAULT.value:
        return Default.DEFAULT
    return str(ast.literal_eval(written)) if written[0] in "'\"" else written
