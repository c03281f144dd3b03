"""The ZooKeeper store: reads and writes quotas as Kafka's brokers do up to 3.9 (ZkConfigManager, DynamicConfig)."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import AuthFailedError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from config.problems import ConfigError, Problem
from config.stores import ZooKeeperStore as Settings
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Limits, Outcome
from quotas.stores.base import ChangedMeanwhileError, Loaded, QuotaStore, UnreadableEntry, UnreadableError
from quotas.stores.zookeeper import tree
from quotas.stores.zookeeper.client import REFUSED, WAIT_S, Connection, UnreachableError
from quotas.stores.zookeeper.reading import ForbiddenError, Node, read_children, read_nodes
from quotas.stores.zookeeper.writing import Writer

_TOPS: Final = (tree.USERS, tree.CLIENTS, tree.IPS, tree.CHANGES)
_MOST_BAD_NOTIFICATIONS: Final = 20
"""Unreadable notifications that are reported."""
_MOST_SHOWN: Final = 100
_LONGEST_SHOWN: Final = 300
_LOOKS_UNTIL_AGAIN: Final = 24
"""Polls until a failed load is repeated, about three seconds. The cause of a failure may end without a notification."""


@dataclass(frozen=True, slots=True)
class _CachedNode:
    """The quotas of a node, and its problem if it has one."""

    path: str
    entity: Entity | None
    limits: Mapping[QuotaKind, float]
    problem: str = ""
    unread: bool = False
    """The node cannot be read; ``limits`` are its previous ones."""


class ZooKeeperStore(QuotaStore):
    """Quotas in ZooKeeper.

    The whole tree is read at the start, after a new session, and on a reload without a notification (a manual reload).
    Otherwise each notification makes one node be read again, as in a broker. A node that is not a valid quota is
    reported, and its previous limits stay.
    """

    def __init__(
        self, settings: Settings, *, password: str | None = None, words: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Create the store. ``password`` replaces the settings' password file; ``words`` renames settings in messages,
        for callers that have no configuration file.
        """
        super().__init__()
        self._source = f"zookeeper://{settings.connect}"
        self._connection = Connection(settings, self._state_changed, password)
        self._words = words
        self._held: dict[str, _CachedNode] = {}
        """The nodes that have quotas or a problem, by path."""
        self._bad_notifications: dict[str, Problem] = {}
        """Problems of notifications since the last full read, by path."""
        self._read_numbers: frozenset[int] = frozenset()
        """The numbers of the notifications at the last look, and ``_last``, which may have been deleted."""
        self._last: int | None = None
        """The number of the last notification read."""
        self._whole = True
        """The whole tree must be read."""
        self._top_nodes: set[str] = set()
        """The top-level nodes that existed at the last full read."""
        self._told = True
        """There may be changes to read: set on kazoo's thread, cleared before reading."""
        self._looks_left = 0
        """Polls left until a failed load is repeated."""

    def changed(self) -> bool:
        if self._looks_left:
            self._looks_left -= 1
            self._told = self._told or not self._looks_left
        return self._told

    def close(self) -> None:
        self._connection.close()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._whole = True
        self._told = True

    def _notice(self, event: object) -> None:  # noqa: ARG002  the next read finds what changed
        self._told = True

    def _load(self) -> Loaded:
        if not self._told:
            self._whole = True
        try:
            with self._explained():
                self._refresh()
        except Exception:
            self._looks_left = _LOOKS_UNTIL_AGAIN
            raise
        self._looks_left = 0
        return self._loaded()

    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        told = self._told
        with self._explained():
            client = self._refresh()
            self._told = self._told or told  # in force with the next load only
            loaded = self._loaded()
            if alteration.version not in (None, loaded.version):
                raise ChangedMeanwhileError(f"{self._source}: has been changed: load it and try again")
            paths = {entity: path for entity, path in loaded.places.items() if entity in wanted}
            writer = Writer(client, self._connection.acl)
            return writer.write(wanted, paths, validate_only=alteration.validate_only)

    # ------------------------------------------------------------------------------------------------- reading

    def _refresh(self) -> KazooClient:
        """Read the changes, or everything."""
        client = self._connection.client()
        self._told = False
        names = self._announced(client)
        numbers = {number: f"{tree.CHANGES}/{name}" for name in names if (number := tree.number_of(name)) is not None}
        new = sorted(numbers.keys() - self._read_numbers)
        if self._whole or self._has_missed(numbers, new):
            self._whole = False  # before reading: a session that ends meanwhile sets it again
            try:
                self._held, self._bad_notifications = self._all(client), {}
            except BaseException:
                self._whole = True
                raise
        else:
            paths = self._changed_paths(client, [numbers[number] for number in new])
            for path, node in zip(paths, read_nodes(client, paths), strict=True):
                self._hold(self._held, path, node)
        self._last = new[-1] if new else self._last
        self._read_numbers = frozenset(numbers if self._last is None else (*numbers, self._last))
        for name in names:
            if tree.number_of(name) is None:
                self._log_bad_notification(f"{tree.CHANGES}/{name}", "its name does not end in ten digits")
        return client

    def _has_missed(self, numbers: Collection[int], new: Sequence[int]) -> bool:
        """Whether notifications may have been missed: brokers delete them after 15 minutes.

        If the last one is gone and there is no newer one, the tree has been replaced.
        """
        if not new:
            return self._last is not None and self._last not in numbers
        if not self._read_numbers:
            return False
        return any(number - 1 not in numbers and number - 1 not in self._read_numbers for number in new)

    def _announced(self, client: KazooClient) -> list[str]:
        """Return the names of the current notifications, and watch for the next one."""
        try:
            names = client.get_children_async(tree.CHANGES, watch=self._notice).get(timeout=WAIT_S)
        except NoNodeError:
            self._whole = True  # perhaps there is no tree at all
            client.exists_async(tree.CHANGES, watch=self._notice).get(timeout=WAIT_S)
            return []
        return [name for name in names if name.startswith(tree.CHANGE)]

    def _log_bad_notification(self, path: str, why: str) -> None:
        self._bad_notifications[path] = self._problem(path, f"is not a notification: {why}; it is skipped")
        while len(self._bad_notifications) > _MOST_BAD_NOTIFICATIONS:
            del self._bad_notifications[next(iter(self._bad_notifications))]

    def _changed_paths(self, client: KazooClient, notifications: Sequence[str]) -> list[str]:
        paths: dict[str, None] = {}
        for path, node in zip(notifications, read_nodes(client, notifications), strict=True):
            try:
                changed = None if node is None else tree.read_notification(node.data)
            except tree.NotificationError as error:
                self._log_bad_notification(path, str(error))
                continue
            if changed is not None:
                paths[changed] = None
        return [*paths]

    def _all(self, client: KazooClient) -> dict[str, _CachedNode]:
        (config,) = read_nodes(client, [tree.CONFIG])
        if config is None:
            hint = "does quotas.store.connect end in the chroot of the brokers' zookeeper.connect?"
            raise UnreadableError([self._problem(tree.CONFIG, "there is no Kafka tree", hint)])
        held: dict[str, _CachedNode] = {}
        below = dict(zip(_TOPS, read_children(client, _TOPS), strict=True))
        there = {top for top, names in below.items() if names is not None}
        if gone := self._top_nodes - there:
            # Brokers create these nodes when they start; if one alone is missing, the tree is being deleted.
            hint = "restart a broker, which recreates it"
            raise UnreadableError([self._problem(top, "is gone", hint) for top in sorted(gone)])
        self._top_nodes = there
        paths = [f"{top}/{name}" for top, names in below.items() if top != tree.CHANGES for name in names or ()]
        lists = []
        for path, node in zip(paths, read_nodes(client, paths), strict=True):
            self._hold(held, path, node)
            if node is not None and node.children and path.startswith(f"{tree.USERS}/"):
                lists.append(f"{path}/clients")
        found = zip(lists, read_children(client, lists), strict=True)
        pairs = [f"{top}/{name}" for top, names in found for name in names or ()]
        for path, node in zip(pairs, read_nodes(client, pairs), strict=True):
            self._hold(held, path, node)
        return held

    def _hold(self, held: dict[str, _CachedNode], path: str, node: Node | None) -> None:
        """Store the limits of a node, or remove them if it is gone; if it is invalid, keep the previous ones."""
        before = self._held.get(path)
        held.pop(path, None)
        entity: Entity | None = None
        try:
            entity = tree.entity_of(path)
            if entity is None:
                return
            properties = tree.properties_of(node and node.data)
            limits = tree.limits_of(entity, properties)
        except Exception as error:  # noqa: BLE001  an error in one node must not affect the others
            wrong = str(error) if isinstance(error, tree.NodeError) else f"cannot be read: {type(error).__name__}"
            limits = {} if before is None else dict(before.limits)
            became = "its previous limits stay in force" if limits else "it is skipped"
            held[path] = _CachedNode(path, entity, limits, f"{wrong}; {became}", unread=True)
            return
        ignored = ", ".join(tree.unknown_properties(entity, properties))
        if limits or ignored:
            problem = f"is no quota and ignored: {ignored[:_MOST_SHOWN]}" if ignored else ""
            held[path] = _CachedNode(path, entity, limits, problem)

    # ------------------------------------------------------------------------------------------------- what is told

    def _loaded(self) -> Loaded:
        limits: dict[Entity, Mapping[QuotaKind, float]] = {}
        places: dict[Entity, int | str] = {}
        warnings = list(self._bad_notifications.values())
        unread: list[UnreadableEntry] = []
        version = hashlib.sha256()
        # Kept in order, so that sorting after one change is cheap.
        self._held = dict(sorted(self._held.items()))
        for path, held in self._held.items():
            problem, skipped = held.problem, held.unread
            if held.limits and held.entity is not None:
                if limits.setdefault(held.entity, held.limits) is not held.limits:
                    problem, skipped = f"is for the same entity as {places[held.entity]}; it is skipped", True
                else:
                    places[held.entity] = path
                    version.update(f"{path}={sorted(held.limits.items())}\n".encode())
            if problem:
                warnings.append(self._problem(path, problem))
            if skipped:
                unread.append(UnreadableEntry(warnings[-1], held.entity))
        return Loaded(Policy(limits), version.hexdigest(), self._source, places, warnings, unread)

    def _problem(self, path: str, message: str, hint: str = "") -> Problem:
        shown = path if len(path) <= _LONGEST_SHOWN else f"{path[:_LONGEST_SHOWN]}…"
        return Problem(self._source, 0, 0, shown, self._worded(message), self._worded(hint))

    def _worded(self, text: str) -> str:
        for setting, word in self._words.items():
            text = text.replace(setting, word)
        return text

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert the errors of reading to UnreadableError."""
        try:
            yield
        except ConfigError as error:
            raise UnreadableError([replace(each, path=self._worded(each.path)) for each in error.problems]) from None
        except UnreachableError as error:
            raise UnreadableError([self._problem("", str(error))], away=True) from None
        except ForbiddenError as error:
            hint = "let the user of quotas.store.sasl read it, or log in as the brokers do"
            raise UnreadableError([self._problem(error.path, "may not be read", hint)], away=True) from None
        except AuthFailedError:
            raise UnreadableError([self._problem("", REFUSED)], away=True) from None
        except (KazooException, KazooTimeoutError) as error:
            failed = f"the connection failed while quotas were read: {type(error).__name__}"
            said = REFUSED if self._connection.is_refused else failed
            raise UnreadableError([self._problem("", said)], away=True) from None
