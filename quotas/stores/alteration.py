"""Requested changes of quotas, checked as Kafka does (ClientQuotaControlManager)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind, Written
from quotas.networks import canonical_ip

Limits = Mapping[QuotaKind, float | None]
"""The limits to set for an entity; None removes one."""

_DIMENSIONS: Final = ("user", "client-id", "ip")
_EPSILON: Final = 1e-6
"""The tolerance for fractions of whole numbers (ClientQuotaControlManager)."""


@dataclass(frozen=True, slots=True)
class Change:
    """The requested change of one entity, not checked yet."""

    entity: Mapping[str, str | Default]
    """Kind of entity (user, client-id, ip) → name."""
    ops: Sequence[tuple[str, float | None]]
    """Property name → limit; None removes it."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes requested together."""

    changes: Sequence[Change]
    who: str
    """The requesting user, for the change log."""
    validate_only: bool = False
    version: str | None = None
    """The version that ``who`` has seen: if the store holds another one, nothing is changed. None: any version."""
    peer: str = ""
    """The address of the client, for the change log; "" if there is none."""
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a change was refused: what is wrong, in which field, and the fix."""

    field: str
    message: str
    fix: str = ""
    kafka: str = ""
    """The controller's message for the same error (ClientQuotaControlManager); "" if it would not refuse."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" + (f"; {self.fix}" if self.fix else "")


@dataclass(frozen=True, slots=True)
class Altered:
    """A changed limit; ``old`` or ``new`` is None for no limit."""

    entity: Entity
    kind: QuotaKind
    old: float | None
    new: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change: refused or made. ``altered`` is empty if nothing differed."""

    refused: Refusal | None = None
    altered: tuple[Altered, ...] = ()


def check(change: Change) -> tuple[Entity, Limits] | Refusal:
    """Return the entity and limits of a change, or why Kafka would refuse it.

    As in Kafka, removed limits are not checked. Two differences: NaN, which Kafka accepts by accident, is refused, and
    so are host names as ip, which Kafka would resolve once.
    """
    keys = [key for key, _ in change.ops]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        return Refusal(twice, "occurs twice for one entity", "give it once", repeated(change.entity))
    entity = _entity(change.entity)
    if isinstance(entity, Refusal):
        return entity
    known = entity.kinds
    limits: dict[QuotaKind, float | None] = {}
    for key, limit in change.ops:
        kind = known.get(key)
        if limit is None:
            if kind is not None:
                limits[kind] = None
        elif kind is None:
            fix = f"known here: {', '.join(known)}"
            return Refusal(key, f"is no quota of {entity.describe()}", fix, f"Invalid configuration key {key}")
        else:
            checked = _limit(kind, limit)
            if isinstance(checked, Refusal):
                return checked
            limits[kind] = checked
    return entity, limits


def _entity(written: Mapping[str, str | Default]) -> Entity | Refusal:
    for dimension, name in written.items():
        if dimension not in _DIMENSIONS:
            fix = f"known here: {', '.join(_DIMENSIONS)}"
            said = f"Unhandled client quota entity type: {dimension}"
            return Refusal(dimension or "entity", "is not a kind of entity", fix, said)
        if isinstance(name, str) and any("\ud800" <= each <= "\udfff" for each in name):
            message = "contains an unpaired surrogate, which UTF-8 cannot represent"
            return Refusal(dimension, message, "write the name again")
    ip = written.get("ip")
    if isinstance(ip, str) and ip and len(written) == 1:
        try:
            ip = canonical_ip(ip)
        except ValueError:
            return Refusal("ip", f"{ip!r} is not an IP address", "host names are not resolved")
    try:
        return Entity(written.get("user"), written.get("client-id"), ip)
    except ValueError as error:
        return Refusal("entity", str(error), kafka=_said_of_entity(written))


def _said_of_entity(written: Mapping[str, str | Default]) -> str:
    """Return the controller's message for names or combinations that make no entity."""
    if empty := next((dimension for dimension, name in written.items() if name == ""), None):
        return f"Empty {empty} not supported"
    if written:  # as it is written there, without the space
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    return "Invalid empty client quota entity"


def repeated(written: Mapping[str, str | Default]) -> str:
    """Return the controller's message for an entity, or a quota of one, that occurs twice."""
    ordered = ("client-id", "user", "ip")  # of Java's HashMap
    names = [*(each for each in ordered if each in written), *(each for each in written if each not in ordered)]
    entries = (f"{each}={name if isinstance(name := written[each], str) else 'null'}" for each in names)
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{', '.join(entries)}}})"


def _limit(kind: QuotaKind, limit: float) -> float | Refusal:
    if math.isnan(limit):
        return Refusal(kind.value, "is not a number", "write a number above 0")
    if limit > 0 and kind.row.written is not Written.NUMBER:  # LONG and INT to Kafka, and not DOUBLE
        most = kind.row.written.value
        if limit > float(most):  # as Java compares: 2^63 is not too large
            of_type = "a LONG" if kind.row.written is Written.BYTES else "an INT"
            said = f"Proposed value for {kind.value} is too large for {of_type}."
            return Refusal(kind.value, f"{limit:.17g} is too large", f"the most is {most}", said)
        if math.fmod(limit, 1) > _EPSILON:
            said = f"{kind.value} cannot be a fractional value."
            return Refusal(kind.value, f"{limit:.17g} is not a whole number", f"write {math.floor(limit)}", said)
        limit = float(round(limit))
    if limit <= 0:
        said = f"Quota {kind.value} must be greater than 0"
        return Refusal(kind.value, "must be above 0", "remove it for no limit", said)
    return limit
