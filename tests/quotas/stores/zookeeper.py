"""A ZooKeeper store under test, and the one who changes quotas beside it as a broker would."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from time import sleep

from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from config.stores import ZooKeeperStore as Settings
from quotas.kinds import QuotaKind, Written
from quotas.numbers import java_double
from quotas.stores.zookeeper.store import ZooKeeperStore
from quotas.stores.zookeeper.tree import path_of
from tests.harness.polling import wait_until
from tests.harness.zookeeper import ZooKeeper
from tests.quotas.stores.contract import Harness, Limits

TOPS = ("users", "clients", "ips")
QUIET = logging.getLogger("tests.zookeeper")
QUIET.setLevel(logging.CRITICAL)


class ZooKeeperHarness(Harness):
    """Writes as a broker does, through a client of its own."""

    def __init__(self, server: ZooKeeper, chroot: str) -> None:
        self.server = server
        self.chroot = chroot
        self.store = ZooKeeperStore(Settings(connect=f"{server.connect}{chroot}", session_timeout_ms=5_000))
        # Back before its session ends, however long the server was away: kazoo waits twice as long each time.
        retry = {"max_tries": -1, "max_delay": 0.5}
        self.client = KazooClient(hosts=server.connect, timeout=5.0, connection_retry=retry, logger=QUIET)
        self.client.start()
        for top in (*TOPS, "changes"):
            self.client.ensure_path(f"{chroot}/config/{top}")

    def close(self) -> None:
        self.store.close()
        if self.client.connected:
            self.client.delete(self.chroot, recursive=True)
        self.client.stop()
        self.client.close()

    def put(self, limits: Limits) -> None:
        self.bring_back()
        wanted = {path_of(entity): _properties(values) for entity, values in limits.items()}
        for path in sorted(self._nodes() - wanted.keys(), reverse=True):  # what is below goes first
            self.write(path, None)
        for path, properties in wanted.items():
            self.write(path, {"version": 1, "config": properties})

    def put_raw(self, entity: Mapping[str, str], name: str, value: str) -> None:
        [(dimension, who)] = entity.items()
        path = f"/config/{dimension}s/{who.replace(' ', '%20')}"
        self.put({})
        self.write(path, {"version": 1, "config": {name: value}})

    def write(self, path: str, value: object, notify: str | None = None) -> None:
        """Write a node (None: without quotas), and a notification."""
        whole = f"{self.chroot}{path}"
        if value is None:
            with suppress(NotEmptyError):
                self.client.delete(whole)
        else:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.client.ensure_path(whole)
            self.client.set(whole, data)
        self.notify(notify or json.dumps({"version": 2, "entity_path": path.removeprefix("/config/")}))

    def _nodes(self) -> set[str]:
        """The nodes of all entities that are there."""
        found = {f"/config/{top}/{name}" for top in TOPS for name in self._names(f"/config/{top}")}
        pairs = {f"{user}/clients/{name}" for user in found for name in self._names(f"{user}/clients")}
        return found | pairs | {f"{user}/clients" for user in found if self.exists(f"{user}/clients")}

    def _names(self, path: str) -> list[str]:
        return self.client.get_children(f"{self.chroot}{path}") if self.exists(path) else []

    def notify(self, text: str) -> None:
        self.client.create(f"{self.chroot}/config/changes/config_change_", text.encode(), sequence=True)

    def read(self, path: str) -> dict[str, str]:
        config: dict[str, str] = json.loads(self.client.get(f"{self.chroot}{path}")[0])["config"]
        return config

    def exists(self, path: str) -> bool:
        return self.client.exists(f"{self.chroot}{path}") is not None

    def take_away(self) -> None:
        self.server.crash()

    def bring_back(self) -> None:
        if self.server.program is None:
            self.server.start()
            wait_until(lambda: self.client.connected)

    def pause(self) -> None:
        sleep(0.02)

    def content(self) -> object:
        return self._below(self.chroot)

    def _below(self, path: str) -> object:
        data, stat = self.client.get(path)
        return data, stat.version, {name: self._below(f"{path}/{name}") for name in self.client.get_children(path)}


def _properties(limits: Mapping[QuotaKind, float]) -> dict[str, str]:
    return {
        kind.value: java_double(limit) if kind.row.written is Written.NUMBER else str(round(limit))
        for kind, limit in limits.items()
    }
