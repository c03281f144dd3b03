"""The ZooKeeper store: quotas read and written as Kafka's brokers do it up to 3.9 (ZkConfigManager, DynamicConfig)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NoNodeError, UnimplementedError
from kazoo.handlers.threading import KazooTimeoutError

from config.problems import ConfigError, Problem
from config.stores import ZooKeeperStore as Settings
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Limits, Outcome
from quotas.stores.base import ChangedMeanwhileError, Loaded, QuotaStore, Unread, UnreadableError
from quotas.stores.zookeeper import tree
from quotas.stores.zookeeper.client import REFUSED, WAIT_S, Connection, UnreachableError
from quotas.stores.zookeeper.held import Held, digest
from quotas.stores.zookeeper.reading import AT_ONCE, Node, Reader, ReadError
from quotas.stores.zookeeper.writing import Writer

_ROOTS: Final = {"users", "clients", "ips"}
_TOPS: Final = (tree.USERS, tree.CLIENTS, tree.IPS, tree.CHANGES)
_PATH: Final = itemgetter(0)
_MOST_STRANGE: Final = 20
"""Notifications that cannot be read, and are told of."""
_MOST_SHOWN: Final = 100
_LONGEST_SHOWN: Final = 300
_LOOKS_UNTIL_AGAIN: Final = 24
"""After a load that failed: three seconds' worth of looks. What keeps quotas from being read may end without a word."""


class ZooKeeperStore(QuotaStore):
    """Quotas in ZooKeeper.

    They are read whole at first, when another session has begun, and when somebody asks for it without a change having
    been told (a reload by hand). Between these each notification makes one node be read again, as at a broker. A node
    that is not a quota is reported, and what it said before holds.
    """

    def __init__(
        self, settings: Settings, *, password: str | None = None, words: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """``password`` is that of the login where it stands in no file of its own; ``words``: what settings are called
        where they are none of a configuration.
        """
        super().__init__()
        self._source = f"zookeeper://{settings.connect}"
        self._connection = Connection(settings, self._state_changed, password)
        self._words = words
        self._held: dict[str, Held] = {}
        """By path, of the nodes that hold quotas or are wrong."""
        self._strange: dict[str, Problem] = {}
        """What was wrong with notifications since everything was read, by path."""
        self._read_numbers: frozenset[int] = frozenset()
        """Of the notifications that were there when it was looked last; and ``_last``, which may be gone by now."""
        self._last: int | None = None
        """The number of the notification that was read last."""
        self._whole = True
        """Everything has to be read."""
        self._tops: set[str] = set()
        """What of the tree was there when it was read whole."""
        self._told = True
        """There may be something to read: set on kazoo's thread, cleared before anything is read."""
        self._looks_left = 0
        """Until a load that failed is tried again."""
        self._at_once = AT_ONCE
        """Nodes in a request, as far as the servers know such requests."""

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

    def _notice(self, event: object) -> None:  # noqa: ARG002  which it was is found by looking
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

    def _alter(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        told = self._told
        with self._explained():
            client = self._refresh()
            self._told = self._told or told  # what was read here is in force with the next load, and not before
            loaded = self._loaded()
            if alteration.version not in (None, loaded.version):
                raise ChangedMeanwhileError(f"{self._source}: has been changed: load it and try again")
            paths = {entity: path for entity, path in loaded.places.items() if entity in wanted}
            writer = Writer(client, self._reader(client), self._connection.acl)
            return writer.write(wanted, paths, validate_only=alteration.validate_only)

    # ------------------------------------------------------------------------------------------------- reading

    def _reader(self, client: KazooClient) -> Reader:
        return Reader(client, WAIT_S, self._at_once)

    def _refresh(self) -> KazooClient:
        """Read what has changed, or everything."""
        try:
            return self._read()
        except UnimplementedError:  # by a server older than 3.6, which closes the connection too, but not at once
            self._at_once = 1
            self._connection.close()
            self._whole = True
            return self._read()

    def _read(self) -> KazooClient:
        client = self._connection.client()
        self._told = False
        reader = self._reader(client)
        names = self._announced(client)
        numbers = {number: f"{tree.CHANGES}/{name}" for name in names if (number := tree.number_of(name)) is not None}
        new = sorted(numbers.keys() - self._read_numbers)
        if self._whole or self._has_missed(numbers, new):
            self._whole = False  # before it is read: a session that ends meanwhile makes it true again
            try:
                self._held, self._strange = self._all(reader), {}
            except BaseException:
                self._whole = True
                raise
        else:
            paths = self._changed_paths(reader, [numbers[number] for number in new])
            for path, node in zip(paths, reader.nodes(paths), strict=True):
                self._hold(self._held, path, node)
        self._last = new[-1] if new else self._last
        self._read_numbers = frozenset(numbers if self._last is None else (*numbers, self._last))
        for name in names:
            if tree.number_of(name) is None:
                self._note_strange(f"{tree.CHANGES}/{name}", "its name does not end in ten digits")
        return client

    def _has_missed(self, numbers: Collection[int], new: Sequence[int]) -> bool:
        """Whether notifications may have come and gone: brokers delete them after a quarter of an hour.

        Where the last one is gone and there is no newer one, it was one of another tree.
        """
        if not new:
            return self._last is not None and self._last not in numbers
        if not self._read_numbers:
            return False
        return any(number - 1 not in numbers and number - 1 not in self._read_numbers for number in new)

    def _announced(self, client: KazooClient) -> list[str]:
        """Return the names of the notifications that are there, and be told of the next one."""
        try:
            names = client.get_children_async(tree.CHANGES, watch=self._notice).get(timeout=WAIT_S)
        except NoNodeError:
            self._whole = True  # is there a tree at all?
            client.exists_async(tree.CHANGES, watch=self._notice).get(timeout=WAIT_S)
            return []
        return [name for name in names if name.startswith(tree.CHANGE)]

    def _note_strange(self, path: str, why: str) -> None:
        self._strange[path] = self._problem(path, f"is no notification: {why}; it is skipped")
        while len(self._strange) > _MOST_STRANGE:
            del self._strange[next(iter(self._strange))]

    def _changed_paths(self, reader: Reader, notifications: Sequence[str]) -> list[str]:
        paths: dict[str, None] = {}
        for path, node in zip(notifications, reader.nodes(notifications), strict=True):
            try:
                change = None if node is None else tree.read_notification(node.data)
            except tree.NotificationError as error:
                self._note_strange(path, str(error))
                continue
            if change is not None and change.root in _ROOTS:
                paths[change.path] = None
        return [*paths]

    def _all(self, reader: Reader) -> dict[str, Held]:
        (config,) = reader.nodes([tree.CONFIG])
        if config is None:
            raise UnreadableError(
                [
                    self._problem(
                        tree.CONFIG,
                        "there is no tree of Kafka's",
                        "does quotas.store.connect end in the chroot of the brokers' zookeeper.connect?",
                    )
                ]
            )
        held: dict[str, Held] = {}
        below = dict(zip(_TOPS, reader.children(_TOPS), strict=True))
        there = {top for top, names in below.items() if names is not None}
        if gone := self._tops - there:
            # Brokers make these when they start, and nobody removes one alone: the tree is being deleted.
            raise UnreadableError(
                [self._problem(top, "is gone", "restart a broker, which makes it again") for top in sorted(gone)]
            )
        self._tops = there
        paths = [f"{top}/{name}" for top, names in below.items() if top != tree.CHANGES for name in names or ()]
        lists = []
        for path, node in zip(paths, reader.nodes(paths), strict=True):
            self._hold(held, path, node)
            if node is not None and node.children and path.startswith(f"{tree.USERS}/"):
                lists.append(f"{path}/clients")
        pairs = [
            f"{top}/{name}" for top, names in zip(lists, reader.children(lists), strict=True) for name in names or ()
        ]
        for path, node in zip(pairs, reader.nodes(pairs), strict=True):
            self._hold(held, path, node)
        return held

    def _hold(self, held: dict[str, Held], path: str, node: Node | None) -> None:
        """Take what a node says, or that it is not there; where it says nothing that can be taken, what it said."""
        before = self._held.get(path)
        held.pop(path, None)
        entity: Entity | None = None
        try:
            entity = tree.entity_of(path)
            if entity is None:
                return
            properties = tree.properties_of(node and node.data)
            limits = tree.limits_of(entity, properties)
        except Exception as error:  # noqa: BLE001  whatever is wrong with one node, all others are read
            wrong = str(error) if isinstance(error, tree.NodeError) else f"cannot be read: {type(error).__name__}"
            limits = {} if before is None else dict(before.limits)
            became = "what it said before holds" if limits else "it is skipped"
            held[path] = Held(entity, limits, f"{wrong}; {became}", True, digest(path, limits))
            return
        ignored = ", ".join(tree.strangers(entity, properties))
        if limits or ignored:
            problem = f"is no quota and ignored: {ignored[:_MOST_SHOWN]}" if ignored else ""
            held[path] = Held(entity, limits, problem, False, digest(path, limits))

    # ------------------------------------------------------------------------------------------------- what is told

    def _loaded(self) -> Loaded:
        limits: dict[Entity, Mapping[QuotaKind, float]] = {}
        places: dict[Entity, int | str] = {}
        warnings = list(self._strange.values())
        unread: list[Unread] = []
        version = 0
        # Kept in order, so that there is next to nothing to sort after one change.
        self._held = dict(sorted(self._held.items(), key=_PATH))
        for path, held in self._held.items():
            problem, skipped = held.problem, held.unread
            if held.limits and held.entity is not None:
                if limits.setdefault(held.entity, held.limits) is not held.limits:
                    problem, skipped = f"is for whom {places[held.entity]} is for, too; it is skipped", True
                else:
                    places[held.entity] = path
                    version += held.digest
            if problem:
                warnings.append(self._problem(path, problem))
            if skipped:
                unread.append(Unread(warnings[-1], held.entity))
        return Loaded(Policy(limits), f"{version:x}", self._source, places, warnings, unread)

    def _problem(self, path: str, message: str, hint: str = "") -> Problem:
        shown = path if len(path) <= _LONGEST_SHOWN else f"{path[:_LONGEST_SHOWN]}…"
        return Problem(self._source, 0, 0, shown, self._worded(message), self._worded(hint))

    def _worded(self, text: str) -> str:
        for setting, word in self._words.items():
            text = text.replace(setting, word)
        return text

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say as UnreadableError what keeps quotas from being read."""
        try:
            yield
        except ConfigError as error:
            raise UnreadableError([replace(each, path=self._worded(each.path)) for each in error.problems]) from None
        except UnreachableError as error:
            raise UnreadableError([self._problem("", str(error))], away=True) from None
        except ReadError as error:
            may_not = isinstance(error.cause, NoAuthError)
            message = "may not be read" if may_not else f"was not read: {type(error.cause).__name__}"
            hint = "let the user of quotas.store.sasl read it, or log in as the brokers do" if may_not else ""
            raise UnreadableError([self._problem(error.path, message, hint)], away=True) from None
        except AuthFailedError:
            raise UnreadableError([self._problem("", REFUSED)], away=True) from None
        except (KazooException, KazooTimeoutError) as error:
            failed = f"the connection failed while quotas were read: {type(error).__name__}"
            said = REFUSED if self._connection.is_refused() else failed
            raise UnreadableError([self._problem("", said)], away=True) from None
