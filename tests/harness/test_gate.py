"""The gate: what is believed of a broken network is only as true as this."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.harness.gate import Gate
from tests.harness.ports import LOOPBACK, free_port
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
                    while received := connection.recv(100):
                        connection.sendall(received)

        threading.Thread(target=serve, daemon=True).start()
        yield Address(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.long
def test_bytes_held_by_a_blocked_gate_arrive_on_open(echo: Address) -> None:
    at = (LOOPBACK, free_port())
    with Gate(Address(*at), echo) as gate:
        with socket.create_connection(at, timeout=60.0) as open_before:
            open_before.sendall(b"there")
            assert open_before.recv(5) == b"there"
            gate.block()
            open_before.sendall(b"hello")
            open_before.settimeout(0.2)
            with pytest.raises(TimeoutError):
                open_before.recv(5)
            with pytest.raises(TimeoutError):
                socket.create_connection(at, timeout=0.2)
            gate.open()
            open_before.settimeout(60.0)
            assert open_before.recv(5) == b"hello"
        with socket.create_connection(at, timeout=60.0) as after:
            after.sendall(b"again")
            assert after.recv(5) == b"again"


def test_shut_gate_refuses_connections_until_opened(echo: Address) -> None:
    at = (LOOPBACK, free_port())
    with Gate(Address(*at), echo) as gate:
        with socket.create_connection(at, timeout=60.0) as open_before:
            open_before.sendall(b"there")
            assert open_before.recv(5) == b"there"
            gate.shut()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(at, timeout=60.0)
            with contextlib.suppress(ConnectionResetError):
                assert open_before.recv(1) == b""
            gate.open()
        with socket.create_connection(at, timeout=60.0) as after:
            after.sendall(b"again")
            assert after.recv(5) == b"again"
