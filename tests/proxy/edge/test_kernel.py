"""What the kernel knows of a connection, by real sockets on loopback."""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.edge.kernel import LOST, look_at
from tests.harness.fake_broker import PRODUCE, fake_broker
from tests.harness.polling import until
from tests.proxy.deaf import deaf
from tests.proxy.front import front
from tests.proxy.playbook import PRODUCER, list_offsets, produce


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as near,
        listening.accept()[0] as far,
    ):
        yield near, far


def test_kernel_tells_bytes_acked_by_peer_and_idle_time() -> None:
    with pair() as (near, far):
        assert look_at(near).acked_bytes <= 1  # the SYN may count
        near.sendall(b"hello")
        assert far.recv(5) == b"hello"
        while (seen := look_at(near)).acked_bytes < 5:
            pass
        assert (seen.is_lost, seen.peer_finished) == (False, False)
        assert 0 <= seen.idle_ms < 60_000


def test_a_peer_that_closes_is_seen_without_reading() -> None:
    with pair() as (near, far):
        far.shutdown(socket.SHUT_WR)
        while not look_at(near).peer_finished:
            pass
        assert not look_at(near).is_lost
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        while not look_at(near).is_lost:
            pass
        near.close()
        assert look_at(near) == LOST


@pytest.mark.asyncio
async def test_behind_a_throttle_the_kernel_holds_no_more_than_a_brokers_buffer() -> None:
    """A client that does not wait for answers pushes as much as it can, from one throttle to the next."""
    async with fake_broker() as one:
        one.answers[PRODUCE] = lambda _: b""
        async with front(one, quotas={PRODUCER: 10_000}) as proxy, deaf(proxy.bootstrap_port) as client:
            await client.send(list_offsets(0))
            await client.receive(12)
            (session,) = proxy.listener.sessions
            transport = session.client._transport  # type: ignore[attr-defined]  # a ClientWire
            size = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert size != 2 * 102_400, "unbounded, as long as nobody is throttled"
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
            pushing = asyncio.ensure_future(client.send(b"".join(produce(n, 50_000, acks=0) for n in range(400))))
            waiting = bytearray(4)
            for throttle in range(12):
                await until(lambda: session.held)
                await asyncio.sleep(0.02)
                connection = transport.get_extra_info("socket")
                fcntl.ioctl(connection.fileno(), termios.FIONREAD, waiting)
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 102_400
                if throttle > 5:  # what came before the bound has been read
                    assert int.from_bytes(waiting, "little") <= 2 * 102_400
                proxy.play.loop.advance(10**9)
            assert not pushing.done(), "what is not read stays with the client"
            pushing.cancel()
