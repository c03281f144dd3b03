"""Quotas as Kafka keeps them in ZooKeeper: nodes and change notifications (ConfigEntityZNode, ZkConfigManager)."""

import json
from dataclasses import dataclass
from typing import Any

from quotas.entities import Default, Entity, Name
from quotas.names import sanitise

ROOTS = {"topics", "clients", "users", "brokers", "ips"}


class BadNotificationError(ValueError):
    """A notification that a broker logs as an error and skips."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Whose node is to be read again; ``entity`` is the path below ``/config/<root>/``, sanitised."""

    root: str
    entity: str


def entity_path(entity: Entity) -> str:
    """Return the node's path below /config."""
    if entity.ip is not None:
        return f"ips/{_node(entity.ip)}"
    if entity.user is None:
        assert entity.client_id is not None
        return f"clients/{_node(entity.client_id)}"
    path = f"users/{_node(entity.user)}"
    return path if entity.client_id is None else f"{path}/clients/{_node(entity.client_id)}"


def node(properties: dict[str, str]) -> dict[str, object]:
    """Return the JSON value of a node."""
    return {"version": 1, "config": properties}


def notification(entity: Entity) -> dict[str, object]:
    """Return the JSON value that announces a change, in the form that Kafka has written since 0.10.1."""
    return {"version": 2, "entity_path": entity_path(entity)}


def read_notification(text: str) -> Changed | None:
    """Return what changed; None where Kafka ignores the text (not JSON). Raises BadNotificationError."""
    try:
        value: Any = json.loads(text, parse_constant=_not_json)
    except ValueError:
        return None
    if not isinstance(value, dict):
        raise BadNotificationError("not an object")
    version = value.get("version")
    if type(version) is not int or version not in {1, 2}:
        raise BadNotificationError(f"version {version!r}")
    if version == 1:
        root, entity = value.get("entity_type"), value.get("entity_name")
        if root not in {"topics", "clients"} or not isinstance(entity, str):
            raise BadNotificationError("version 1 needs an entity_type (topics or clients) and an entity_name")
        return Changed(root, entity)
    path = value.get("entity_path")
    if not isinstance(path, str):
        raise BadNotificationError("version 2 needs an entity_path")
    root, slash, entity = path.partition("/")
    if root not in ROOTS or not slash:
        raise BadNotificationError(f"bad path {path!r}")
    return Changed(root, entity)


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is Python's idea of JSON, not Jackson's")


def _node(name: Name) -> str:
    assert isinstance(name, str | Default)
    return "<default>" if isinstance(name, Default) else sanitise(name)
