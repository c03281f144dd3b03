"""Probes of the admin port are answered, whatever 200 connections of another address do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from config.loader import load_settings
from config.settings import Admin
from proxy.admin import connections
from proxy.admin.access import Access
from proxy.admin.endpoints import Scrapes
from proxy.admin_port import admin_server
from proxy.runtime.tasks import spawn
from tests.harness.ports import free_port
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


STATES: Final = (
    silent,
    half_a_head,
    idle_after_an_answer,
    answer_in_progress,
    answer_not_read,
    reads_slowly,
    event_stream,
    many_requests,
)


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
    forever = asyncio.Event()

    async def ask(*_: object) -> dict[str, object]:
        await forever.wait()
        return {}

    running = program()
    if become is answer_in_progress:
        monkeypatch.setattr(running.state, "ask", ask)
    server = admin_server(load_settings(file), running, Access(Admin()))
    await server.start()
    try:
        async with flooded(port, become):
            await asyncio.sleep(0.3)
            timeout = aiohttp.ClientTimeout(total=PROBE_S)
            for number in range(PROBES):
                async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=timeout) as client:
                    async with client.get(("/livez", "/readyz")[number % 2]) as answer:
                        assert answer.status == 200
                    assert len(server._connections._open) <= connections.MOST
                await asyncio.sleep(0.01)
    finally:
        forever.set()
        await server.stop()
