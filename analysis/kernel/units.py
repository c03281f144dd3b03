"""Units: counters on brokers, with one or several clients each.

Under proposed quotas the policy assigns clients to units (``Assignment.of``), while recorded the rule in the record did
(``recorded_unit``).
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from analysis.kernel.arrays import Floats, Indices
from quotas.counted import CAP
from quotas.entities import EACH, Default, Entity, Group, Name, Prefix
from quotas.kinds import CLIENT_KINDS, Law, QuotaKind
from quotas.policy import PLAIN, Key, Policy, Terms
from quotas.precedence import caps_of, counter_of, counter_under, level_of, winner_of

REPLAYED: Final = tuple(kind for kind in CLIENT_KINDS if kind.row.law is Law.SAMPLED_RATE)
"""The kinds that the kernel can replay: sampled rates on one broker that delay requests."""
_REPLAYED_TERMS: Final = frozenset(("shadow", "proposed", "shared"))
"""Limits in shadow and proposed ones are not enforced in the replay either."""


def not_replayed(terms: Terms) -> list[str]:
    """Return the terms of a rule that the replay does not support, in words of quota files."""
    plain = Terms()
    differ = [each.name for each in fields(terms) if getattr(terms, each.name) != getattr(plain, each.name)]
    written = {"of_cluster": "scope: cluster"}
    return [written.get(name, name.removesuffix("_ms")) for name in differ if name not in _REPLAYED_TERMS]


class ClientOnBroker(NamedTuple):
    """A client on one broker, on any listener."""

    cluster: str
    instance: str
    """"" if one proxy at a time had the broker."""
    broker: int
    user: str
    client_id: str


class Unit(NamedTuple):
    """A counter on a broker; user and client_id are its tags, "" if that part plays no role."""

    cluster: str
    instance: str
    broker: int
    user: str
    client_id: str
    several: int = 0
    """Bits: a tag is a group or a prefix (``quotas.counted``)."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The units of clients, with their rules and limits."""

    units: tuple[Unit, ...]
    rules: tuple[Entity | None, ...]
    """[unit] the quota that wins; None: unlimited."""
    limits: Floats
    """[unit], inf for none; in the unit of the kind, on one broker."""
    index: Indices
    """[client] the number of its unit."""

    @classmethod
    def of(cls, policy: Policy, kind: QuotaKind, clients: Iterable[ClientOnBroker]) -> "Assignment":
        """Return the counters of ``kind`` under ``policy``, without caps."""
        book, in_use = policy.book(kind), 0
        for key in book.limits:
            in_use |= level_of(key)
        numbers: dict[Unit, int] = {}
        winners: list[Key | None] = []
        index = []
        for client in clients:
            winner = winner_of(book, client.user, client.client_id)
            counter = counter_of(book, in_use, client.user, client.client_id)
            unit = Unit(client.cluster, client.instance, client.broker, *counter)
            number = numbers.setdefault(unit, len(numbers))
            if number == len(winners):
                winners.append(None if winner is None or book.terms_of(winner).shadow else winner)
            index.append(number)
        return cls(
            tuple(numbers),
            tuple(None if key is None else book.entities[key] for key in winners),
            np.array([np.inf if key is None else book.limits[key] for key in winners]),
            np.array(index, dtype=np.intp),
        )


def caps_in_force(policy: Policy, kind: QuotaKind, client: ClientOnBroker) -> list[Entity]:
    book = policy.book(kind, cap=True)
    found = caps_of(book, client.user, client.client_id)
    return [book.entities[key] for key, _ in found if not book.terms_of(key).shadow]


class RecordedRule(NamedTuple):
    """A quota or a cap in records."""

    entity: Entity
    shared: bool = True
    """False for a prefix whose client-ids have a counter each."""


def recorded_unit(client: ClientOnBroker, rule: Entity, *, shared: bool = True) -> Unit:
    """Return the counter of a client under ``rule``."""
    terms = PLAIN if shared else _EACH
    user, client_id, several = counter_under((rule.user, rule.client_id), client.user, client.client_id, terms)
    return Unit(client.cluster, client.instance, client.broker, user, client_id, several | CAP if rule.cap else several)


_EACH: Final = Terms(shared=False)


_DIMENSIONS: Final = {
    "user": "user",
    "user-group": "user",
    "client-id": "client_id",
    "client-id-prefix": "client_id",
    "ip": "ip",
}
_CAP: Final = "cap "
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_PART: Final = re.compile(rf"(user-group|client-id-prefix|user|client-id|ip)=({_QUOTED}|<default>|[^\s<>,=\"'\\]+)")


@lru_cache(maxsize=1000)
def read_rule(text: str) -> RecordedRule:
    """Read a rule as ``Entity.describe`` writes it, in records and metrics. Raises ValueError for anything else."""
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
            return RecordedRule(Entity(names.get("user"), names.get("client_id"), names.get("ip"), cap), text == whole)
        if not text.startswith(", ", at):
            raise ValueError(f"{text!r} goes on after a name, at {text[at:]!r}; parts are separated by a comma")
        at += 2


def _name(written: str) -> Name:
    if written == Default.DEFAULT.value:
        return Default.DEFAULT
    return str(ast.literal_eval(written)) if written[0] in "'\"" else written
