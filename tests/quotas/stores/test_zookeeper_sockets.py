"""How servers of ZooKeeper are reached, without one."""

import socket
from typing import Any

import pytest

from quotas.stores.zookeeper.sockets import ATTEMPT_S, SILENT, Sockets
from tests.harness.ports import LOOPBACK

SESSION_S = 18.0
"""What kazoo would wait for."""


def test_a_host_that_says_nothing_is_not_waited_for_as_long_as_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def connect(address: object, timeout: float) -> Any:
        waits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", connect)
    for timeout_s in (SESSION_S, 0.5):
        with pytest.raises(TimeoutError):
            Sockets(None).connect(("192.0.2.1", 2181), "zk1", timeout_s)
    assert waits == [ATTEMPT_S, 0.5]


def test_reason_names_silent_server_and_not_one_that_is_down() -> None:
    """A server that is down comes back by itself."""
    sockets = Sockets(None)
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        sockets.connect((LOOPBACK, port), "zk1", SESSION_S).close()
        assert sockets.why() == f"zk1:{port} {SILENT}"
    with pytest.raises(ConnectionRefusedError):
        sockets.connect((LOOPBACK, port), "zk1", SESSION_S)
    assert sockets.why() == ""
