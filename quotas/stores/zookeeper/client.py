"""The connection to ZooKeeper: kazoo's, with what a store needs to know of it."""

import logging
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient, KazooState, KeeperState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from config.document import read_text
from config.stores import ZooKeeperStore as Settings
from quotas.stores.zookeeper.sockets import Sockets
from quotas.stores.zookeeper.tree import USERS

WAIT_S: Final = 4.0
"""How long a connection, or a response, is waited for."""
REFUSED: Final = "the login was refused: see quotas.store.sasl, and the users in the servers' JAAS file"
_RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}

# At lower levels kazoo logs what it reads, and so the credentials of users.
_log: Final = logging.getLogger("sluice.zookeeper")
_log.setLevel(logging.CRITICAL)


class UnreachableError(Exception):
    """No server answered, or none let us in; says which were tried, and what to do."""


class Connection:
    """One client, connected when it is first needed, and from then on again whenever it was lost.

    ``changed`` is called with every state (KazooState) that the connection comes to, on kazoo's thread. Without a
    ``password`` the file is read that the settings name.
    """

    def __init__(self, settings: Settings, changed: Callable[[str], None], password: str | None = None) -> None:
        self._settings = settings
        self._password = password
        self._changed = changed
        self._client: KazooClient | None = None
        self._up: Any = None
        self._sockets: Sockets | None = None

    def client(self) -> KazooClient:
        """Return the client, connected. Raises UnreachableError, and ConfigError for a file that is not to be read."""
        if self.is_refused():
            self.close()
        if self._client is None:
            client = self._new()
            client.add_listener(self._changed)
            self._client, self._up = client, client.start_async()
        if not self._up.wait(WAIT_S):
            raise UnreachableError(self._why(self._client))
        return self._client

    def is_refused(self) -> bool:
        """Whether the servers did not take the login; they may end the connection before they are asked anything."""
        return self._client is not None and self._client.client_state == KeeperState.AUTH_FAILED

    def acl(self, path: str) -> list[ACL]:
        """Return who may do what with a node that is to be written (ZkData.defaultAcls)."""
        if not self._settings.set_acl:
            return list(OPEN_ACL_UNSAFE)
        return list(CREATOR_ALL_ACL) if path.startswith(USERS) else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def close(self) -> None:
        """End the session; the next ``client`` begins another one."""
        if self._client is not None:
            self._client.remove_listener(self._changed)
            self._client.stop()
            self._client.close()
            self._client = None

    def _new(self) -> KazooClient:
        settings = self._settings
        options: dict[str, Any] = {}
        if settings.sasl is not None:
            password = self._password or read_text(settings.sasl.password_file).rstrip("\r\n")
            options["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": settings.sasl.username,
                "password": password,
            }
        self._sockets = Sockets(settings.tls)
        handler = SequentialThreadingHandler()
        handler.create_connection = self._sockets.connect
        return KazooClient(
            hosts=settings.connect,
            timeout=settings.session_timeout_ms / 1000,
            connection_retry=_RETRY,
            command_retry={"max_tries": 0},
            logger=_log,
            handler=handler,
            **options,
        )

    def _why(self, client: KazooClient) -> str:
        if client.client_state == KeeperState.AUTH_FAILED:
            return REFUSED
        if self._sockets is not None and (why := self._sockets.why()):
            return f"no server answered within {WAIT_S:g} s: {why}"
        was = "the connection was lost" if client.state == KazooState.SUSPENDED else "none was reached"
        return f"no server answered within {WAIT_S:g} s ({was}): see quotas.store.connect and .tls"
