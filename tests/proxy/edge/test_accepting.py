import asyncio
import os
import resource
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from config.units import Address
from proxy.edge import listening
from proxy.edge.kernel import KEEPALIVE
from proxy.edge.listening import Acceptor, bind
from tests.harness.polling import until
from tests.harness.ports import free_port, free_ports
from tests.proxy.front import TIMEOUT_S

pytestmark = pytest.mark.asyncio


class Taken:
    def __init__(self, send_buffer_bytes: int = -1, delays_ms: Iterable[int] = ()) -> None:
        self.connections: list[tuple[socket.socket, Address, int | None]] = []
        self.failures = 0
        delays = iter(delays_ms)
        self.acceptor = Acceptor("PLAIN", self._take, self._fail, lambda: next(delays, 0))
        self._send_buffer_bytes = send_buffer_bytes

    def listen(self, port: int, node_id: int | None) -> None:
        self.acceptor.listen(bind("127.0.0.1", port, self._send_buffer_bytes), node_id)

    def _take(self, client: socket.socket, peer: Address, node_id: int | None) -> None:
        self.connections.append((client, peer, node_id))

    def _fail(self) -> None:
        self.failures += 1

    async def until(self, number: int) -> None:
        await until(lambda: len(self.connections), is_so=lambda taken: taken >= number)

    def close(self) -> None:
        self.acceptor.close()
        for client, _, _ in self.connections:
            client.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let the process open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208  names alone are wanted
    spare = [os.dup(0)]
    while spare[-1] < highest:
        spare.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)


async def test_every_connection_is_handed_on_with_its_peer_and_broker() -> None:
    taken = Taken()
    any_broker, broker_7 = free_ports(2)
    taken.listen(any_broker, None)
    taken.listen(broker_7, 7)
    clients = [socket.create_connection(("127.0.0.1", port)) for port in [any_broker] + 100 * [broker_7]]
    await taken.until(101)
    assert {(str(peer), node_id) for _, peer, node_id in taken.connections} == {
        ("{}:{}".format(*client.getsockname()), None if client is clients[0] else 7) for client in clients
    }
    assert not any(client.getblocking() for client, _, _ in taken.connections)
    for client in clients:
        client.close()
    taken.close()


async def test_connections_are_kept_alive_and_have_the_send_buffer_that_was_set() -> None:
    taken = Taken(send_buffer_bytes=30_000)
    port = free_port()
    taken.listen(port, None)
    with socket.create_connection(("127.0.0.1", port)):
        await taken.until(1)
        ((accepted, _, _),) = taken.connections
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert [accepted.getsockopt(socket.IPPROTO_TCP, option) for option, _ in KEEPALIVE] == [60, 15, 4]
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 60_000  # the kernel doubles it
    taken.close()


@pytest.mark.parametrize("delayed", [False, True])
async def test_a_port_that_is_left_to_another_process_is_open_and_not_accepted_at(delayed: bool) -> None:
    taken = Taken(delays_ms=[50] if delayed else [])
    port, other = free_port(), free_port()
    taken.listen(other, 1)
    (left,) = bind("127.0.0.1", port)
    taken.acceptor.listen([left], 7)
    with socket.create_connection(("127.0.0.1", other)):
        taken.acceptor.leave([left])
        with socket.create_connection(("127.0.0.1", port)):
            await taken.until(1)  # a delayed one lets all others wait, and then go on
            accepted, _ = left.accept()
            accepted.close()
        assert [node_id for _, _, node_id in taken.connections] == [1]
        taken.acceptor.listen([left], 7)
        with socket.create_connection(("127.0.0.1", port)):
            await taken.until(2)
        taken.acceptor.leave([left])
    taken.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_after_close_nothing_listens() -> None:
    taken = Taken()
    port = free_port()
    taken.listen(port, None)
    taken.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_out_of_descriptors_connections_wait_and_are_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_PAUSE_S", 0.05)
    taken = Taken()
    port = free_port()
    taken.listen(port, None)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    with capture_logs() as logs, no_descriptors():
        await until(lambda: taken.failures >= 2)
    assert taken.connections == []
    assert taken.failures < 10, "it does not spin"
    assert [line["event"] for line in logs] == ["cannot accept connections, trying again"]
    await taken.until(3)
    for client in clients:
        client.close()
    taken.close()


async def test_a_pause_that_ends_after_close_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_PAUSE_S", 0.01)
    taken = Taken()
    port = free_port()
    taken.listen(port, None)
    waiting = socket.create_connection(("127.0.0.1", port))
    with no_descriptors():
        await until(lambda: taken.failures)
        taken.close()
    await asyncio.sleep(0.05)
    assert taken.connections == []
    waiting.close()


@pytest.mark.long
async def test_delayed_connection_is_accepted_before_connections_at_other_ports() -> None:
    taken = Taken(delays_ms=[0, 500, 0, 50])
    any_broker, broker_7 = free_ports(2)
    taken.listen(any_broker, None)
    taken.listen(broker_7, 7)
    clients = []
    for number, port in enumerate([broker_7, any_broker, broker_7, broker_7, any_broker], 1):
        clients.append(socket.create_connection(("127.0.0.1", port)))
        if number == 1:
            await taken.until(1)
        if number == 2:
            await until(lambda: taken.acceptor._delayed is not None)
    assert len(taken.connections) == 1
    await taken.until(5)
    ports = [each.getsockname()[1] for each in clients]
    assert [peer.port for _, peer, _ in taken.connections[:2]] == ports[:2]
    assert {peer.port for _, peer, _ in taken.connections} == set(ports)
    for client in clients:
        client.close()
    taken.close()


async def test_a_port_that_opens_while_one_waits_is_listened_to_after_that() -> None:
    taken = Taken(delays_ms=[50])
    first, second = free_ports(2)
    taken.listen(first, None)
    with socket.create_connection(("127.0.0.1", first)):
        await until(lambda: taken.acceptor._delayed is not None)
        taken.listen(second, 2)
        with socket.create_connection(("127.0.0.1", second)):
            await taken.until(2)
    assert [node_id for _, _, node_id in taken.connections] == [None, 2]
    taken.close()


async def test_delayed_connection_is_closed_when_acceptor_closes() -> None:
    taken = Taken(delays_ms=[200])
    port = free_port()
    taken.listen(port, None)
    with socket.create_connection(("127.0.0.1", port)) as waiting:
        await until(lambda: taken.acceptor._delayed is not None)
        taken.close()
        waiting.settimeout(TIMEOUT_S)
        assert waiting.recv(1) == b""
    await asyncio.sleep(0.25)  # its wait is over: nobody is taken
    assert taken.connections == []
