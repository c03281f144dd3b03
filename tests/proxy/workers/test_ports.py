"""Listening sockets that are bound by one process, and handed to another."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.edge.listening import bind
from proxy.workers.ports import TO_WORKER, Ports, PortsOfSupervisor
from tests.harness.ports import free_port

pytestmark = pytest.mark.asyncio

HOST = "127.0.0.1"


class Asked:
    """Counts questions and bound ports."""

    def __init__(self) -> None:
        self.questions = self.heard = 0
        self.bound: list[int] = []

    def ask(self) -> None:
        self.questions += 1

    def hear(self) -> None:
        self.heard += 1

    def bind(self, host: str, port: int) -> list[socket.socket]:
        self.bound.append(port)
        return bind(host, port)


@asynccontextmanager
async def serving(asked: Asked, workers: int) -> AsyncIterator[tuple[Ports, list[PortsOfSupervisor]]]:
    ports = Ports(asked.bind, asked.ask)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(workers)]
    for end, _ in pairs:
        ports.serve(end, asked.hear)
    try:
        yield ports, [PortsOfSupervisor(theirs) for _, theirs in pairs]
    finally:
        ports.close()
        for ours, theirs in pairs:
            ports.leave(ours)
            ours.close()
            theirs.close()


def can_connect(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


async def test_a_port_is_bound_once_and_open_while_anybody_has_it() -> None:
    asked, port = Asked(), free_port()
    async with serving(asked, 2) as (ports, workers):
        taken = [(await asyncio.to_thread(each.bind, HOST, port))[0] for each in workers]
        assert (asked.bound, asked.questions) == ([port], 2)
        assert {each.getsockname() for each in taken} == {(HOST, port)}
        with socket.create_connection((HOST, port)) as client:
            accepted, peer = taken[1].accept()
            assert peer == client.getsockname()
            accepted.close()
        taken.pop().close()
        ports.close()
        assert can_connect(port)
        taken.pop().close()
        assert not can_connect(port)
        with pytest.raises(OSError, match="stopping"):
            await asyncio.to_thread(workers[0].bind, HOST, port)


async def test_the_way_to_a_worker_is_made_once_and_stays() -> None:
    """A worker that is started again has the same one, with what was sent meanwhile."""
    asked = Asked()
    async with serving(asked, 2) as (ports, workers):
        ways = [await asyncio.to_thread(each.bind, TO_WORKER, 0) for each in workers]
        ports.keep(())
        (receiver, unused), (also_unused, sender) = ways
        for each in (receiver, unused, also_unused):
            each.close()
        sender.send(b"sent to nobody yet")
        again, own = await asyncio.to_thread(workers[0].bind, TO_WORKER, 0)
        assert again.recv(100) == b"sent to nobody yet"
        assert asked.bound == []
        ports.close()
        again.close()
        own.close()
        with pytest.raises(BrokenPipeError):
            sender.send(b"to nobody at all")
        sender.close()


async def test_a_worker_tells_that_it_is_alive_and_does_not_wait_for_the_supervisor() -> None:
    asked = Asked()
    async with serving(asked, 1) as (_, (worker,)):
        for _ in range(10_000):  # more than the socket takes while nobody reads
            worker.tell_alive()
        assert asked.heard == 0
        await asyncio.sleep(0.1)
        assert asked.heard > 1
        assert asked.questions == 0


async def test_ports_that_are_not_wanted_any_more_are_closed() -> None:
    asked, kept, gone = Asked(), free_port(), free_port()
    async with serving(asked, 1) as (ports, (worker,)):
        for port in (kept, gone):
            for each in await asyncio.to_thread(worker.bind, HOST, port):
                each.close()
        assert asked.bound == [kept, gone]
        ports.keep({(HOST, kept)})
        assert can_connect(kept)
        assert not can_connect(gone)


async def test_a_port_in_use_is_refused_with_its_reason() -> None:
    with socket.create_server((HOST, 0)) as other:
        async with serving(Asked(), 1) as (_, (worker,)):
            with pytest.raises(OSError, match="in use") as caught:
                await asyncio.to_thread(worker.bind, HOST, other.getsockname()[1])
            assert caught.value.errno == errno.EADDRINUSE


async def test_a_supervisor_that_has_ended_binds_nothing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs, pytest.raises(OSError, match=r"ended|[Bb]roken pipe"):
        PortsOfSupervisor(theirs).bind(HOST, free_port())


async def test_a_worker_that_has_ended_asks_no_more() -> None:
    asked = Asked()
    async with serving(asked, 1) as (_, (worker,)):
        worker._end.close()
        await asyncio.sleep(0)
    assert asked.questions == 0


async def test_an_answer_that_comes_too_late_is_not_that_of_the_next_question() -> None:
    asked, first, second = Asked(), free_port(), free_port()
    async with serving(asked, 1) as (_, (worker,)):
        worker._end.settimeout(0.01)
        with pytest.raises(TimeoutError):
            worker.bind(HOST, first)  # on the loop, which therefore cannot answer
        worker._end.settimeout(5)
        (taken,) = await asyncio.to_thread(worker.bind, HOST, second)
        assert taken.getsockname() == (HOST, second)
        taken.close()
