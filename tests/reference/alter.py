"""Which AlterClientQuotas requests a broker refuses, on KRaft and on ZooKeeper."""

import math
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from quotas.entities import Name

CLIENT_KEYS = {
    "producer_byte_rate": "LONG",
    "consumer_byte_rate": "LONG",
    "request_percentage": "DOUBLE",
    "controller_mutation_rate": "DOUBLE",
}
IP_KEYS = {"connection_creation_rate": "INT"}
LARGEST = {"INT": 2**31 - 1, "LONG": 2**63 - 1}
EPSILON = 1e-6

Operation = tuple[str, float | None]
"""(key, value); None removes it, and is never validated."""


def refusal(mode: str, entity: Mapping[str, Name], operations: Sequence[Operation], *, resolves: bool) -> str | None:
    """Return why a request is refused (always INVALID_REQUEST), or None; a None name is the default entity."""
    keys = [key for key, _ in operations]
    if mode == "kraft" and len(set(keys)) != len(keys):
        return "a key twice for one entity"
    reason = _entity_refusal(mode, entity, resolves=resolves)
    if reason is not None:
        return reason
    kinds = IP_KEYS if "ip" in entity else CLIENT_KEYS
    value_refusal = _kraft_refusal if mode == "kraft" else _zookeeper_refusal
    for key, value in operations:
        if value is None:
            continue
        if key not in kinds:
            return f"unknown key {key}"
        reason = value_refusal(kinds[key], value)
        if reason is not None:
            return f"{key}: {reason}"
    return None


def _entity_refusal(mode: str, entity: Mapping[str, Name], *, resolves: bool) -> str | None:
    if not entity:
        return "empty entity"
    if not entity.keys() <= {"user", "client-id", "ip"}:
        return "unknown entity type"
    if "" in entity.values():
        return "empty name"
    if "ip" not in entity:
        return None
    if len(entity) > 1:
        return "ip together with user or client-id"
    ip = entity["ip"]
    if isinstance(ip, str) and not _resolvable(mode, ip, resolves=resolves):
        return "ip neither an address nor resolvable"
    return None


def _resolvable(mode: str, ip: str, *, resolves: bool) -> bool:
    try:
        address = ip_address(ip)
    except ValueError:
        return resolves
    # A ZooKeeper-mode broker looks up the percent-encoded name: "%3A%3A1" is no address.
    return address.version == 4 or mode == "kraft"


def _kraft_refusal(kind: str, value: float) -> str | None:
    # Comparisons with NaN are false, so NaN passes (ClientQuotaControlManager.validateQuotaKeyValue).
    if value <= 0:
        return "not positive"
    if kind in LARGEST:
        if value > LARGEST[kind]:
            return "too large"
        if math.fmod(value, 1) > EPSILON:
            return "not a whole number"
    return None


def _zookeeper_refusal(kind: str, value: float) -> str | None:
    if kind == "DOUBLE" or math.isnan(value):
        return None
    largest = LARGEST[kind]
    truncated = largest if value + EPSILON >= largest else math.trunc(max(value + EPSILON, -largest - 1))
    return "not a whole number" if abs(truncated - value) > EPSILON else None
