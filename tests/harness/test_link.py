"""The link that can be cut: what is believed of a broken network is only as true as this."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.harness.link import Link
from tests.harness.ports import LOOPBACK
from tests.harness.wire import Address


@pytest.fixture
def echo() -> Iterator[Address]:
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(connection.recv(100))

        threading.Thread(target=serve, daemon=True).start()
        yield Address(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)


def test_what_is_dropped_arrives_when_it_is_healed(echo: Address) -> None:
    with Link(echo) as link:
        at = (link.address.host, link.address.port)
        with socket.create_connection(at, timeout=60.0) as open_before:
            link.drop()
            open_before.sendall(b"hello")
            open_before.settimeout(0.2)
            with pytest.raises(TimeoutError):
                open_before.recv(5)
            with pytest.raises(TimeoutError):
                socket.create_connection(at, timeout=0.2)
            link.heal()
            open_before.settimeout(60.0)
            assert open_before.recv(5) == b"hello"
        with socket.create_connection(at, timeout=60.0) as after:
            after.sendall(b"again")
            assert after.recv(5) == b"again"


def test_what_is_refused_is_reset(echo: Address) -> None:
    with Link(echo) as link:
        at = (link.address.host, link.address.port)
        with socket.create_connection(at, timeout=60.0) as open_before:
            link.refuse()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(at, timeout=60.0)
            with contextlib.suppress(ConnectionResetError):
                assert open_before.recv(1) == b""
            link.heal()
        with socket.create_connection(at, timeout=60.0) as after:
            after.sendall(b"again")
            assert after.recv(5) == b"again"
