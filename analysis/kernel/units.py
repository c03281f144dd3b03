"""Whose use counts together: from the clients of usage records to the counters of a policy.

A unit is one counter of one proxy instance on one broker; several clients may share it, and its limit. Which they do
depends on the quotas: under proposed ones the policy says it (``Assignment.of``), for recorded ones the rule that
stands in the record does (``recorded_unit``).
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from quotas.connections import UNLIMITED
from quotas.counted import CAP
from quotas.entities import BETWEEN, EACH, Default, Entity, Group, Name, Prefix
from quotas.kinds import METERED, QuotaKind, Whose
from quotas.policy import PLAIN, Key, Policy
from quotas.precedence import caps_of, counter_of, find, level_of


class Client(NamedTuple):
    """Who is in one row of usage records, apart from the listener: counters do not know it."""

    instance: str
    broker: int
    user: str
    client_id: str
    ip: str = ""
    """Of connections, whose clients nobody knows yet: then all else but the instance is empty."""


class Unit(NamedTuple):
    """One counter; user and client_id are its tags, "" where that part plays no role."""

    instance: str
    broker: int
    """-1 for what is counted once for all brokers."""
    user: str
    client_id: str
    several: int = 0
    """Whether a tag stands for a group or for a prefix, and not for one name (``quotas.counted``)."""
    ip: str = ""


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


_CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE

COLUMNS: Final[Mapping[QuotaKind, Columns]] = {
    **{kind: _of(kind) for kind in METERED},
    # A connection is its own request.
    _CONNECTIONS: replace(_of(_CONNECTIONS), requests=_CONNECTIONS.row.columns.used),
}


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
    caps: Indices = field(default_factory=lambda: np.zeros((0, 0), dtype=np.intp))
    """[client, place]: the units of the caps that hold besides, the narrowest first; -1: none. A unit is in one place
    alone, that of all caps of its form; without places where nobody has any."""

    @classmethod
    def of(cls, policy: Policy, kind: QuotaKind, clients: Iterable[Client]) -> "Assignment":
        """Return who shares a counter of ``kind`` under ``policy``, put in force where none was before."""
        table = policy.table(kind)
        if kind.row.whose is Whose.IP:
            return cls._of_addresses(table, clients)
        levels = 0
        for configured in table:
            levels |= level_of(configured)
        terms = policy.terms_of(kind)
        clients = tuple(clients)
        found = [(client, *find(policy, kind, levels, client.user, client.client_id)) for client in clients]
        mine = [Unit(each.instance, _broker(each, kind), *counter) for each, _, counter in found]
        units, index = _numbered(mine)
        by_unit = {unit: key for unit, (_, key, _) in zip(mine, found, strict=True)}
        winners = [by_unit[unit] for unit in units]
        keys = [None if key is None or terms.get(key, PLAIN).shadow else key for key in winners]
        made = cls(
            units,
            tuple(None if key is None else policy.client(key) for key in keys),
            np.array([np.inf if key is None else table[key] for key in keys]),
            index,
        )
        return made._with_caps(policy, kind, clients)

    def _with_caps(self, policy: Policy, kind: QuotaKind, clients: Sequence[Client]) -> "Assignment":
        """Return the same with the counters of caps behind those of quotas."""
        table = policy.table(kind, cap=True)
        if not table:
            return self
        found = [_caps(policy, kind, client) for client in clients]
        numbers: dict[Unit, int] = {}
        rules: list[Entity | None] = []
        limits: list[float] = []
        forms = sorted({_form(key) for of_client in found for _, key in of_client})
        place_of = {form: place for place, form in enumerate(forms)}
        caps = np.full((len(clients), len(forms)), -1, dtype=np.intp)
        for client, of_client in enumerate(found):
            for unit, key in of_client:
                if unit not in numbers:
                    numbers[unit] = len(self.units) + len(numbers)
                    rules.append(policy.client(key, cap=True))
                    limits.append(table[key])
                caps[client, place_of[_form(key)]] = numbers[unit]
        return Assignment(
            (*self.units, *numbers), (*self.rules, *rules), np.append(self.limits, limits), self.index, caps
        )

    @classmethod
    def _of_addresses(cls, table: Mapping[Key, float], clients: Iterable[Client]) -> "Assignment":
        """Each address has a counter of its own, whichever listener it comes to."""
        units, index = _numbered(Unit(client.instance, -1, "", "", ip=client.ip) for client in clients)
        keys = [
            next((key for key in ((unit.ip, None), (Default.DEFAULT, None)) if key in table), None) for unit in units
        ]
        limits = [np.inf if key is None or table[key] == UNLIMITED else table[key] for key in keys]
        return cls(units, tuple(None if key is None else Entity(ip=key[0]) for key in keys), np.array(limits), index)

    @classmethod
    def each(
        cls,
        clients: Iterable[Client],
        kind: QuotaKind = QuotaKind.PRODUCER_BYTE_RATE,
        *,
        user: bool,
        client_id: bool,
    ) -> "Assignment":
        """Return one unlimited unit for each user, each client-id or each pair: for whom quotas are to be found."""
        units, index = _numbered(
            Unit(each.instance, _broker(each, kind), each.user if user else "", each.client_id if client_id else "")
            for each in clients
        )
        return cls(units, (None,) * len(units), np.full(len(units), np.inf), index)


def _caps(policy: Policy, kind: QuotaKind, client: Client) -> list[tuple[Unit, Key]]:
    """Return the caps in force that hold for a client."""
    table, terms = policy.table(kind, cap=True), policy.terms_of(kind, cap=True)
    lengths, group = policy.prefix_lengths(kind, cap=True), policy.groups_of(kind, cap=True).get(client.user)
    found = caps_of(table, terms, lengths, group, client.user, client.client_id)
    return [
        (Unit(client.instance, _broker(client, kind), *counter), key)
        for key, counter in found
        if not terms.get(key, PLAIN).shadow
    ]


def _form(key: Key) -> tuple[int, int, int]:
    """Return where caps of the form of a key stand among others: as in ``quotas.precedence.levels``."""
    user, client_id = key
    of_user = 3 if user is None else 2 if isinstance(user, Default) else 1 if isinstance(user, Group) else 0
    of_client_id = 3 if client_id is None else 2 if isinstance(client_id, Default) else 0
    if isinstance(client_id, Prefix):
        return of_user, 1, -len(client_id.text)
    return of_user, of_client_id, 0


def _broker(client: Client, kind: QuotaKind) -> int:
    return -1 if kind.row.of_cluster else client.broker


def _numbered(units: Iterable[Unit]) -> tuple[tuple[Unit, ...], Indices]:
    numbers: dict[Unit, int] = {}
    index = [numbers.setdefault(unit, len(numbers)) for unit in units]
    return tuple(numbers), np.array(index, dtype=np.intp)


class Rule(NamedTuple):
    """A quota or a cap, as records name it."""

    entity: Entity
    shared: bool = True
    """False: of a prefix whose client-ids have a counter each."""


def recorded_unit(
    client: Client,
    rule: Entity | None,
    kind: QuotaKind = QuotaKind.PRODUCER_BYTE_RATE,
    *,
    shared: bool = True,
) -> Unit | None:
    """Return the counter that a client was measured by when ``rule`` held for it; None: it was unlimited."""
    if rule is None:
        return None
    if rule.ip is not None:
        return Unit(client.instance, -1, "", "", ip=client.ip)
    terms = PLAIN if shared else _EACH
    user, client_id, several = counter_of((rule.user, rule.client_id), client.user, client.client_id, terms)
    return Unit(client.instance, _broker(client, kind), user, client_id, several | CAP if rule.cap else several)


_EACH: Final = PLAIN._replace(shared=False)


_DIMENSIONS: Final = {
    "user": "user",
    "user-group": "user",
    "client-id": "client_id",
    "client-id-prefix": "client_id",
    "ip": "ip",
}
_CAP: Final = "cap "
_MOST_RULES: Final = 10_000
"""That are remembered: a table of rows names a hundred, and the next one the same."""
_LONGEST_REMEMBERED: Final = 500
"""Characters: names in records of others may be of any length, and all rules together are to be some megabytes."""
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ONE_OF_SEVERAL: Final = re.compile(rf"(?:{_QUOTED}|[^;'\"])+")
_PART: Final = re.compile(rf"(user-group|client-id-prefix|user|client-id|ip)=({_QUOTED}|<default>|[^\s<>,=\"'\\]+)")


def parse_rule(text: str) -> Entity:
    """Return the entity that ``Entity.describe`` wrote as ``text``, as records and metrics name rules.

    Raises ValueError for anything else.
    """
    return read_rule(text).entity


def split_rules(text: str) -> list[str]:
    """Return the rules that one text names, with BETWEEN between them; what is not written so is one."""
    found = [each.removeprefix(" ") for each in _ONE_OF_SEVERAL.findall(text)]
    return found if BETWEEN.join(found) == text else [text]


def read_rule(text: str) -> Rule:
    """Return the same with what the text says of its counters. Raises ValueError likewise."""
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _read(text)


@lru_cache(maxsize=_MOST_RULES)
def _remembered(text: str) -> Rule:
    return _read(text)


def _read(text: str) -> Rule:
    names: dict[str, Name] = {}
    whole, text = text, text.removesuffix(EACH)
    cap = text.startswith(_CAP)
    at = len(_CAP) if cap else 0
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
            return Rule(Entity(names.get("user"), names.get("client_id"), names.get("ip"), cap), text == whole)
        if not text.startswith(", ", at):
            raise ValueError(f"{text!r} goes on after a name, at {text[at:]!r}; parts are separated by a comma")
        at += 2


def _name(written: str) -> Name:
    if written == Default.DEFAULT.value:
        return Default.DEFAULT
    return str(ast.literal_eval(written)) if written[0] in "'\"" else written
