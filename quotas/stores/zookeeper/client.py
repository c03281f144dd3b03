"""The connection to ZooKeeper, a wrapper of kazoo's client."""

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
"""The timeout of a connection attempt and of a response."""
REFUSED: Final = "the login was refused: see quotas.store.sasl, and the users in the servers' JAAS file"
_RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}

# At lower levels kazoo logs the data it reads, including credentials of users.
_log: Final = logging.getLogger("sluice.zookeeper")
_log.setLevel(logging.CRITICAL)


class UnreachableError(Exception):
    """No server answered, or none accepted the login; says which were tried, and what to do."""


class Connection:
    """One client, connected on first use and reconnected after a loss.

    ``changed`` is called on kazoo's thread with every state of the connection (KazooState). Without a ``password``, the
    file named in the settings is read.
    """

    def __init__(self, settings: Settings, changed: Callable[[str], None], password: str | None = None) -> None:
        self._settings = settings
        self._password = password
        self._changed = changed
        self._client: KazooClient | None = None
        self._up: Any = None
        self.is_refused = False
        """The servers refused the login; they may close the connection before the first request."""
        self._sockets: Sockets | None = None

    def client(self) -> KazooClient:
        """Return the connected client. Raises UnreachableError, and ConfigError for a file that cannot be read."""
        if self.is_refused:
            self.close()
        if self._client is None:
            self._client = self._new()
            self._client.add_listener(self._state_changed)
            self._up = self._client.start_async()
        if not self._up.wait(WAIT_S):
            raise UnreachableError(self._why(self._client))
        return self._client

    def acl(self, path: str) -> list[ACL]:
        """Return the ACL of a node to be written (ZkData.defaultAcls)."""
        if not self._settings.set_acl:
            return list(OPEN_ACL_UNSAFE)
        return list(CREATOR_ALL_ACL) if path.startswith(USERS) else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def close(self) -> None:
        """Close the session; the next ``client`` opens another one."""
        if self._client is not None:
            self._client.remove_listener(self._state_changed)
            self._client.stop()
            self._client.close()
            self._client, self.is_refused = None, False

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

    def _state_changed(self, state: str) -> None:
        """Remember a refused login: kazoo's client is AUTH_FAILED for a moment, then CLOSED for ever."""
        if self._client is not None and self._client.client_state == KeeperState.AUTH_FAILED:
            self.is_refused = True
        self._changed(state)

    def _why(self, client: KazooClient) -> str:
        if self.is_refused:
            return REFUSED
        if self._sockets is not None and (why := self._sockets.why()):
            return f"no server answered within {WAIT_S:g} s: {why}"
        was = "the connection was lost" if client.state == KazooState.SUSPENDED else "none was reached"
        return f"no server answered within {WAIT_S:g} s ({was}): see quotas.store.connect and .tls"
