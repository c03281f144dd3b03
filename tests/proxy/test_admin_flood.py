"""Probes of the admin port are answered, whatever 200 connections of another address do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from config.loader import load_settings
from config.settings import Admin
from proxy.admin import connections
from proxy.admin.access import Access
from proxy.admin.connections import _Connection
from proxy.admin.endpoints import Scrapes
from proxy.admin.tls import tls_of
from proxy.admin_port import admin_server
from proxy.runtime.tasks import spawn
from tests.harness.ports import free_port
from tests.proxy.pki import Pki
from tests.proxy.test_admin_port import CONFIG, program

pytestmark = [pytest.mark.asyncio, pytest.mark.long]

FLOOD: Final = 200
PROBES: Final = 40
PROBE_S: Final = 5.0

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def silent(_: Peer) -> None:
    pass


async def half_a_head(peer: Peer) -> None:
    peer[1].write(get("/livez")[:-2])


async def idle_after_an_answer(peer: Peer) -> None:
    peer[1].write(get("/livez"))
    await peer[0].readuntil(b"ok\n")


async def answer_in_progress(peer: Peer) -> None:
    peer[1].write(get("/api/v1/clients"))


async def answer_not_read(peer: Peer) -> None:
    peer[1].write(get("/metrics"))


async def reads_slowly(peer: Peer) -> None:
    peer[1].write(get("/metrics"))
    while await peer[0].read(1000):
        await asyncio.sleep(0.02)


async def event_stream(peer: Peer) -> None:
    peer[1].write(get("/events?page=overview"))
    await peer[0].readuntil(b"\n\n")


async def many_requests(peer: Peer) -> None:
    peer[1].write(100 * get("/metrics"))


async def half_a_handshake(peer: Peer) -> None:
    peer[1].write(b"\x16\x03\x01\x02\x00\x01\x00")


def has_no_request(connection: _Connection) -> bool:
    return connection.transport is not None and not connection.is_answering and not connection.is_idle


def is_shaking_hands(connection: _Connection) -> bool:
    return connection.transport is None


is_idle, is_answering = attrgetter("is_idle"), attrgetter("is_answering")

STATES: Final[dict[Callable[[Peer], Awaitable[None]], Callable[[_Connection], bool]]] = {
    silent: has_no_request,
    half_a_head: has_no_request,
    idle_after_an_answer: is_idle,
    answer_in_progress: is_answering,
    answer_not_read: is_answering,
    reads_slowly: is_answering,
    event_stream: is_answering,
    many_requests: is_answering,
    half_a_handshake: is_shaking_hands,
}
"""The attacks, and how their connections look from within."""
LEAST: Final = 4
"""Connections in that state at once: some are only for a few (8 streams), and each may be cut off for another."""


@asynccontextmanager
async def flooded(port: int, become: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[None]:
    """Keep 200 connections of 127.0.0.2 in a state; each that is closed connects again."""

    async def one() -> None:
        while True:
            with suppress(OSError, EOFError):
                peer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0), limit=1000)
                try:
                    await become(peer)
                    while not peer[1].transport.is_closing() and peer[0].exception() is None and not peer[0].at_eof():
                        await asyncio.sleep(0.1)
                finally:
                    peer[1].transport.abort()
                    with suppress(OSError):
                        await peer[1].wait_closed()
            await asyncio.sleep(0.1)

    attackers = [spawn(one(), "attack") for _ in range(FLOOD)]
    try:
        yield
    finally:
        for each in attackers:
            each.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


async def large(_: object) -> bytes:
    return bytes(8_000_000)


@pytest.mark.parametrize("become", STATES, ids=[each.__name__ for each in STATES])
async def test_probes_are_answered_whatever_another_address_does(
    become: Callable[[Peer], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scrapes, "_render", large)
    file, port = tmp_path / "sluice.yaml", free_port()
    file.write_text(CONFIG.format(port=port))
    admin, scheme = Admin(), "http"
    if become is half_a_handshake:
        admin, scheme = Admin(tls=Pki(tmp_path).settings()), "https"
    tls = tls_of(admin)
    forever = asyncio.Event()

    async def ask(*_: object) -> dict[str, object]:
        await forever.wait()
        return {}

    running = program()
    if become is answer_in_progress:
        monkeypatch.setattr(running.state, "ask", ask)
    server = admin_server(load_settings(file), running, Access(admin, tls), tls)
    await server.start()
    most, most_in_state = 0, 0
    try:
        async with flooded(port, become):
            await asyncio.sleep(0.3)
            timeout = aiohttp.ClientTimeout(total=PROBE_S)
            for number in range(PROBES):
                async with aiohttp.ClientSession(f"{scheme}://127.0.0.1:{port}", timeout=timeout) as client:
                    async with client.get(("/livez", "/readyz")[number % 2], ssl=False) as answer:
                        assert answer.status == 200
                    attacking = [each for each in server._connections._open if each.network == "127.0.0.2"]
                    most = max(most, len(server._connections._open))
                    most_in_state = max(most_in_state, sum(map(STATES[become], attacking)))
                await asyncio.sleep(0.01)
        assert most == connections.MOST, "all places were taken"
        assert most_in_state >= LEAST
    finally:
        forever.set()
        await server.stop()
