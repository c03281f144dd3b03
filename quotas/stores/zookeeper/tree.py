"""The format of Kafka's quotas in ZooKeeper: names, nodes and notifications (ConfigEntityZNode, ZkConfigManager).

Pure functions, without a connection to a server.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from quotas.entities import Default, Entity, Name
from quotas.kinds import QuotaKind, Written
from quotas.names import configured_as, counted_as, desanitise, sanitise
from quotas.networks import canonical_ip
from quotas.numbers import java_double
from quotas.stores.unlimited import of_zero

CONFIG: Final = "/config"
CHANGES: Final = f"{CONFIG}/changes"
USERS: Final = f"{CONFIG}/users"
CLIENTS: Final = f"{CONFIG}/clients"
IPS: Final = f"{CONFIG}/ips"
CHANGE: Final = "config_change_"
"""The prefix of notification names; ten digits follow."""

LONGEST_PATH: Final = 256 * 1024
"""The sanitised length of a user and a client-id of 32,767 bytes each. ZooKeeper refuses requests of a mebibyte."""

_OF_QUOTAS: Final = {"clients", "users", "ips"}
_ROOTS: Final = {"topics", "brokers", *_OF_QUOTAS}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
# A node holds up to a mebibyte of digits: the parts of the pattern must not overlap, or matching is quadratic.
_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_LONG_DIGITS: Final = 19
"""The digits of the largest LONG. Python refuses to parse thousands of digits (sys.set_int_max_str_digits)."""
_SHOWN: Final = 100
_NUMBER: Final = re.compile(r"-?[0-9]{10}")
"""A sequential node's number in ZooKeeper: an int, which may overflow."""
_SCRAM: Final = re.compile(r"SCRAM-SHA-\d+")


class NodeError(ValueError):
    """A node that a broker logs as an error and skips; the message never contains secrets."""


class NotificationError(ValueError):
    """A notification that a broker logs as an error and skips."""


# --------------------------------------------------------------------------------------------------------- names


def path_of(entity: Entity) -> str:
    """Return the path of an entity's node."""
    if entity.ip is not None:
        return f"{IPS}/{_node(entity.ip)}"
    if entity.user is None:
        return f"{CLIENTS}/{_node(entity.client_id)}"
    path = f"{USERS}/{_node(entity.user)}"
    return path if entity.client_id is None else f"{path}/clients/{_node(entity.client_id)}"


def entity_of(path: str) -> Entity | None:
    """Return the entity of a node; None if it is not one of an entity. Raises NodeError for a bad name."""
    try:
        match path.removeprefix(f"{CONFIG}/").split("/"):
            case ["users", user]:
                return Entity(user=_name(user))
            case ["users", user, "clients", client_id]:
                return Entity(_name(user), _name(client_id))
            case ["clients", client_id]:
                return Entity(client_id=_name(client_id))
            case ["ips", ip]:
                name = _name(ip)
                return Entity(ip=name if isinstance(name, Default) else canonical_ip(name))
    except ValueError as error:
        raise NodeError(f"the name is not an entity: {str(error)[:_SHOWN]}") from None
    return None


def _node(name: Name) -> str:
    if isinstance(name, Default):
        return name.value
    if not isinstance(name, str) or name in {".", ".."}:
        raise NodeError(
            f"{name!r} cannot be stored in ZooKeeper: Kafka's tree holds names (other than . and ..) and defaults"
        )
    if configured_as(name) != counted_as(name):
        raise NodeError(f"{name!r} is the short form of a long name, and brokers know the long one")
    return sanitise(name)


def _name(node: str) -> str | Default:
    return Default.DEFAULT if node == Default.DEFAULT.value else desanitise(node)


# --------------------------------------------------------------------------------------------------------- nodes


def properties_of(data: bytes | None) -> dict[str, str]:
    """Return a node's properties, quotas and others. Raises NodeError."""
    if not data:
        return {}
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise NodeError("is not JSON") from None
    config = value.get("config", {}) if isinstance(value, dict) else None
    if not isinstance(config, dict):
        raise NodeError('is not {"version":1,"config":{…}}')
    for name, text in config.items():
        if not isinstance(text, str):
            raise NodeError(f"{name[:_SHOWN]}: must be a JSON string")
    return config


def limits_of(entity: Entity, properties: Mapping[str, str]) -> dict[QuotaKind, float]:
    """Return the quotas among a node's properties. Raises NodeError."""
    known = entity.kinds
    return {known[name]: _limit(known[name], text) for name, text in properties.items() if name in known}


def unknown_properties(entity: Entity, properties: Mapping[str, str]) -> list[str]:
    """Return the names of properties that are neither quotas of this entity nor credentials of a user."""
    known = entity.kinds
    return [name for name in properties if name not in known and not _SCRAM.fullmatch(name)]


def with_limits(properties: Mapping[str, str], limits: Mapping[QuotaKind, float | None]) -> dict[str, str]:
    """Return the properties of a node with these limits set, or removed where they are None; all others stay."""
    merged = dict(properties)
    for kind, limit in limits.items():
        if limit is None:
            merged.pop(kind.value, None)
        else:
            most = kind.row.written.value
            # The largest LONG is not a double: the next double above it is converted down to it, as by Java's cast.
            merged[kind.value] = (
                java_double(limit) if kind.row.written is Written.NUMBER else str(int(min(limit, most)))
            )
    return merged


def node_of(properties: Mapping[str, str]) -> bytes:
    return orjson.dumps({"version": 1, "config": properties})


def _limit(kind: QuotaKind, text: str) -> float:
    """Parse a limit as a broker does: whole numbers for bytes and connections, Java's doubles for the others."""
    pattern = _DOUBLE if kind.row.written is Written.NUMBER else _INTEGER
    stripped = text.strip() if kind.row.written is Written.NUMBER else text
    if not pattern.fullmatch(stripped):
        raise NodeError(f"{kind}: {text[:40]!r} is not a {'number' if pattern is _DOUBLE else 'whole number'}")
    most = kind.row.written.value
    digits = stripped.lstrip("+-").lstrip("0") or "0"
    if pattern is _INTEGER and (len(digits) > _LONG_DIGITS or int(digits) > most):
        raise NodeError(f"{kind}: {text[:40]!r} is too large: the most is {most}")
    limit = float(stripped.rstrip("fFdD"))
    if math.isnan(limit) or limit < 0:
        raise NodeError(f"{kind}: {text[:40]!r} is no limit")
    return of_zero(kind, limit)


# ------------------------------------------------------------------------------------------------- notifications


def notification_of(path: str) -> bytes:
    """Return the notification of a changed node, in Kafka's format since 0.10.1."""
    return orjson.dumps({"version": 2, "entity_path": path.removeprefix(f"{CONFIG}/")})


def number_of(name: str) -> int | None:
    """Return the number of a notification from the name of its node; None if it is not one."""
    digits = name.removeprefix(CHANGE)
    return int(digits) if digits != name and _NUMBER.fullmatch(digits) else None


def read_notification(data: bytes | None) -> str | None:
    """Return the path of the changed node; None if it is none of quotas, or if Kafka ignores the data (not JSON).

    Raises NotificationError.
    """
    try:
        value: Any = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        raise NotificationError("is not an object")
    version = value.get("version")
    if type(version) is not int or version not in {1, 2}:
        raise NotificationError(f"version {str(version)[:_SHOWN]!r} is not known")
    if version == 1:
        root, entity = value.get("entity_type"), value.get("entity_name")
        if root not in {"topics", "clients"} or not isinstance(entity, str):
            raise NotificationError("version 1 needs an entity_type (topics or clients) and an entity_name")
    else:
        path = value.get("entity_path")
        root, slash, entity = path.partition("/") if isinstance(path, str) else ("", "", "")
        if root not in _ROOTS or not slash:
            raise NotificationError(f"version 2 needs an entity_path, not {f'{root}{slash}{entity}'[:_SHOWN]!r}")
    if len(entity) > LONGEST_PATH:
        raise NotificationError(f"the path {root}/{entity[:_SHOWN]!r}… has {len(entity)} characters")
    if not {".", ".."}.isdisjoint(entity.split("/")):
        raise NotificationError(f"bad path {entity[:_SHOWN]!r}: ZooKeeper has no nodes of such names")
    return f"{CONFIG}/{root}/{entity}" if root in _OF_QUOTAS else None
