"""Quotas in the words of kafka-configs (ConfigCommand); lines about features of Sluice begin with "Sluice"."""

from collections.abc import Mapping
from math import isinf
from typing import Final

from config.units import BYTE_UNITS
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind, Written
from quotas.names import counted_as
from quotas.numbers import java_double
from quotas.policy import Terms
from quotas.stores.alteration import Altered
from quotas.stores.edit import number
from quotas.stores.filters import is_of_kafka
from quotas.stores.unlimited import as_described
from quotas.texts import shown

_WHO: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_ORDER: Final = (
    QuotaKind.CONSUMER_BYTE_RATE,
    QuotaKind.CONTROLLER_MUTATION_RATE,
    QuotaKind.REQUEST_PERCENTAGE,
    QuotaKind.PRODUCER_BYTE_RATE,
    QuotaKind.CONNECTION_CREATION_RATE,
)
"""The order of limits on a line: that of Java's HashMap, which with all four of a client begins with the fourth."""
_UNITS: Final = [(unit, size) for unit, size in reversed(BYTE_UNITS.items()) if unit.endswith("iB")]


def names(entity: Entity) -> dict[str, Name]:
    """Return entity type → name."""
    of_entity = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return {kind: name for kind, name in of_entity.items() if name is not None}


def beyond_kafka(entity: Entity) -> str:
    """Return the parts of an entity that Kafka does not have; "" for one of Kafka's."""
    parts = {
        "a cap": entity.cap,
        "a group of users": isinstance(entity.user, Group),
        "a prefix of client-ids": isinstance(entity.client_id, Prefix),
    }
    return ", ".join(part for part, is_there in parts.items() if is_there)


def has_cut_name(entity: Entity) -> bool:
    """Whether only the beginning of one of its names is known."""
    return any(isinstance(name, str) and counted_as(name) != name for name in names(entity).values())


def described(entity: Entity, limits: Mapping[QuotaKind, float]) -> str:
    """Return the line of kafka-configs --describe, or one of Sluice's own."""
    order = (*_ORDER[3:], *_ORDER[:3]) if len(limits) > 3 else _ORDER
    pairs = ", ".join(f"{kind}={java_double(as_described(kind, limits[kind]))}" for kind in order if kind in limits)
    whose = "Quota" if is_of_kafka(entity) else "Sluice cap" if entity.cap else "Sluice quota"
    return f"{whose} configs for {_who(entity)} are {pairs}"


def terms_described(entity: Entity, terms: Terms) -> str:
    cap = "the cap of " if entity.cap else ""
    return f"Sluice terms for {cap}{_who(entity)} are {', '.join(terms_as_pairs(terms))}"


def terms_as_pairs(terms: Terms) -> list[str]:
    """Return a rule's terms as in a quota file, each as ``key=value``."""
    written = terms_written(terms)
    proposed = {f"proposed.{kind}": str(number(limit)) for kind, limit in terms.proposed.items()}
    return [f"{key}={value}" for key, value in (written | proposed).items() if not isinstance(value, dict)]


def terms_written(terms: Terms) -> dict[str, str | dict[str, str]]:
    """Return a rule's terms as in a quota file."""
    written: dict[str, str | dict[str, str]] = {}
    if terms.shadow:
        written["mode"] = "shadow"
    if terms.of_cluster:
        written["scope"] = "cluster"
    if terms.proposed:
        written["proposed"] = {str(kind): str(number(limit)) for kind, limit in terms.proposed.items()}
    if terms.burst_ms is not None:
        written["burst"] = f"{terms.burst_ms}ms"
    if terms.max_delay_ms is not None:
        written["max_delay"] = f"{terms.max_delay_ms}ms"
    if not terms.shared:
        written["shared"] = "false"
    return written


def completed(entity: Entity) -> str:
    """Return the final line of kafka-configs --alter, which names only the first of a pair; this one names both."""
    of_entity = names(entity)
    if set(of_entity.values()) == {Default.DEFAULT}:
        kinds = " and ".join(f"{kind.removesuffix('-id')}s" for kind in of_entity)
        return f"Completed updating default config for {kinds} in the cluster."
    whose = ", ".join(
        f"the default {kind}" if isinstance(name, Default) else f"{kind} {shown(str(name))}"
        for kind, name in ((kind.removesuffix("-id"), name) for kind, name in of_entity.items())
    )
    return f"Completed updating config for {whose}."


def altered(change: Altered) -> str:
    """Return a changed limit as a line: ``~ user=alice producer_byte_rate 1024 → 2048``."""
    old, new = (None if limit is None else _written(change.kind, limit) for limit in (change.old, change.new))
    whose = f"{change.entity.describe()} {change.kind}"
    if old is None:
        return f"+ {whose} {new}"
    return f"- {whose} {old}" if new is None else f"~ {whose} {old} → {new}"


def _who(entity: Entity) -> str:
    return ", ".join(_named(kind, name) for kind, name in names(entity).items())


def _named(kind: str, name: Name) -> str:
    match name:
        case Default():
            return f"the default {_WHO[kind]}"
        case Group(group):
            return f"user-group '{shown(group)}'"
        case Prefix(prefix):
            return f"client-id-prefix '{shown(prefix)}'"
    return f"{_WHO[kind]} '{shown(str(name))}'"


def plain(kind: QuotaKind, limit: float | None) -> str:
    """Return a readable limit: bytes in the largest unit that is exact."""
    if limit is None:
        return "-"
    if kind.row.written is Written.BYTES:
        for unit, size in _UNITS:
            if limit and limit < 2**63 and limit % size == 0:
                return f"{limit / size:.0f}{unit}"
    return _written(kind, limit)


def number_in_json(limit: float) -> int | float | str:
    """Return a limit for JSON, which has no infinity."""
    if isinf(limit):
        return java_double(limit)
    return int(number(limit) or limit) if limit.is_integer() else limit


def _written(kind: QuotaKind, limit: float) -> str:
    shown_limit = as_described(kind, limit)
    return number(shown_limit) or java_double(shown_limit)
