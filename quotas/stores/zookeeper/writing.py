"""Changes of quotas in ZooKeeper, written as brokers do (ZkAdminManager, AdminZkClient).

Each alteration is one transaction that includes its notifications: all of it is written, or nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.security import ACL

from quotas.entities import Entity
from quotas.stores.alteration import Limits, Outcome, Refusal
from quotas.stores.base import ChangedMeanwhileError, UnwritableError, outcome_of
from quotas.stores.zookeeper import tree
from quotas.stores.zookeeper.client import WAIT_S
from quotas.stores.zookeeper.reading import Node, read_nodes

MOST_AT_ONCE: Final = 1000
"""Entities per alteration: ZooKeeper refuses transactions of a mebibyte."""
_ATTEMPTS: Final = 5
_CHANGED: Final = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


class Writer:
    """Writes through a connected client. ``acl`` returns the ACL of a node by its path."""

    def __init__(self, client: KazooClient, acl: Callable[[str], list[ACL]]) -> None:
        self._client = client
        self._acl = acl

    def write(
        self, wanted: Mapping[Entity, Limits], paths: Mapping[Entity, Any], *, validate_only: bool
    ) -> dict[Entity, Outcome]:
        """Make the changes; ``paths`` are existing nodes of entities. Raises as QuotaStore.alter and ``read_nodes``."""
        if len(wanted) > MOST_AT_ONCE:
            raise UnwritableError(f"{len(wanted)} entities at once: ask for {MOST_AT_ONCE} at most")
        outcomes: dict[Entity, Outcome] = {}
        places: dict[Entity, str] = {}
        for entity in wanted:
            try:
                places[entity] = paths.get(entity) or tree.path_of(entity)
            except tree.NodeError as error:
                outcomes[entity] = Outcome(Refusal(entity.describe(), str(error)))
        for _ in range(_ATTEMPTS):
            planned, changes = self._plan(wanted, places)
            if validate_only or not changes or self._commit(changes):
                return outcomes | planned
        raise ChangedMeanwhileError("the nodes are being changed by others: try again")

    def _plan(
        self, wanted: Mapping[Entity, Limits], places: Mapping[Entity, str]
    ) -> tuple[dict[Entity, Outcome], dict[str, tuple[Node | None, dict[str, str]]]]:
        """Return the outcome of each entity, and by path the current node and its new properties."""
        outcomes: dict[Entity, Outcome] = {}
        changes: dict[str, tuple[Node | None, dict[str, str]]] = {}
        for (entity, path), node in zip(places.items(), read_nodes(self._client, places.values()), strict=True):
            try:
                properties = tree.properties_of(node and node.data)
                before = tree.limits_of(entity, properties)
            except tree.NodeError as error:
                outcomes[entity] = Outcome(Refusal(path, str(error), "fix the node, or delete it"))
                continue
            outcomes[entity] = outcome_of(entity, before, wanted[entity])
            if outcomes[entity].altered:
                changes[path] = node, tree.with_limits(properties, wanted[entity])
        return outcomes, changes

    def _commit(self, changes: Mapping[str, tuple[Node | None, dict[str, str]]]) -> bool:
        """Write all changes, each with a notification. Returns False if a node has changed meanwhile."""
        transaction = self._client.transaction()
        new = dict.fromkeys(self._missing(changes), b"")
        new |= {path: tree.node_of(properties) for path, (node, properties) in changes.items() if node is None}
        for path in sorted(new):  # parents first
            transaction.create(path, new[path], self._acl(path))
        for path, (node, properties) in changes.items():
            if node is not None and not properties and not node.children and f"{path}/clients" not in new:
                transaction.delete(path, node.version)
            elif node is not None:
                transaction.set_data(path, tree.node_of(properties), node.version)
            change = f"{tree.CHANGES}/{tree.CHANGE}"
            transaction.create(change, tree.notification_of(path), self._acl(change), sequence=True)
        results = transaction.commit_async().get(timeout=WAIT_S)
        errors = [each for each in results if isinstance(each, KazooException)]
        because = [each for each in errors if not isinstance(each, RolledBackError | RuntimeInconsistency)]
        if any(isinstance(each, NoAuthError) for each in because):
            raise UnwritableError("ZooKeeper does not let this user write there: log in as the brokers do")
        if errors and not all(isinstance(each, _CHANGED) for each in because):
            raise UnwritableError(f"ZooKeeper refused to write: {', '.join(type(each).__name__ for each in because)}")
        if not errors:
            self._tidy([path for path, (_, properties) in changes.items() if not properties])
        return not errors

    def _missing(self, paths: Iterable[str]) -> list[str]:
        """Return the missing parents of these paths, and the parent of notifications if it is missing."""
        above: dict[str, None] = {tree.CHANGES: None}
        for path in paths:
            parts = path.split("/")
            above |= dict.fromkeys("/".join(parts[:count]) for count in range(2, len(parts)))
        names = sorted(above)
        return [path for path, node in zip(names, read_nodes(self._client, names), strict=True) if node is None]

    def _tidy(self, paths: list[str]) -> None:
        """Delete nodes that became empty, as a broker does: the list of a user's clients, and the user."""
        for path in paths:
            user, found, _ = path.partition("/clients/")
            if not found or not path.startswith(tree.USERS):
                continue
            for empty in (f"{user}/clients", user):
                (node,) = read_nodes(self._client, [empty])
                if node is None:
                    continue
                if node.children or tree.properties_of(node.data):
                    break
                try:
                    self._client.delete_async(empty, node.version).get(timeout=WAIT_S)
                except _CHANGED:
                    break  # it is in use again
