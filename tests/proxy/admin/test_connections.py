"""The admin port is there for who asks, whatever strangers do at it, and takes few descriptors."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from proxy.admin import connections
from tests.harness.polling import until
from tests.proxy.admin.test_server import Served, serving
from tests.proxy.sabotage import Sabotage

pytestmark = pytest.mark.asyncio

HALF = b"GET /livez HTTP/1.1\r\nHost: "
WHOLE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
TIMEOUT_S = 30.0

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(served: Served, first: bytes, host: str = "127.0.0.1") -> Peer:
    port = int(served.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(first)
    return reader, writer


@asynccontextmanager
async def crowd(served: Served, number: int, first: bytes, host: str = "127.0.0.1") -> AsyncIterator[list[Peer]]:
    peers = [await connect(served, first, host) for _ in range(number)]
    try:
        yield peers
    finally:
        for _, writer in peers:
            writer.close()


async def is_closed(peer: Peer) -> bool:
    """Wait for that, for as long as a test may take."""
    async with asyncio.timeout(TIMEOUT_S):
        with suppress(ConnectionResetError):
            await peer[0].read()
    return True


async def answer_of(peer: Peer) -> bytes:
    async with asyncio.timeout(TIMEOUT_S):
        return await peer[0].readuntil(b"ok\n")


@pytest.mark.parametrize("first", [b"", HALF, WHOLE], ids=["silence", "half a request", "a request"])
async def test_full_admin_port_closes_oldest_idle_connections_for_new_request(
    first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 0.0)
    async with serving() as (served, client), crowd(served, 3 * connections.MOST, first) as peers:
        async with client.get("/livez") as answer:
            assert answer.status == 200
        assert len(served.server._connections._open) <= connections.MOST
        for peer in peers[: 2 * connections.MOST]:
            assert await is_closed(peer)


async def test_full_admin_port_closes_unread_answers_for_new_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 0.0)
    async with serving() as (served, client):
        monkeypatch.setattr(served.scrapes, "_render", page)
        async with crowd(served, connections.MOST + 4, WHOLE.replace(b"livez", b"metrics")):
            async with client.get("/livez") as answer:
                assert answer.status == 200
            assert len(served.server._connections._open) <= connections.MOST


async def test_young_connection_is_safe_from_others_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 60.0)
    async with serving() as (served, _), crowd(served, connections.MOST, HALF) as peers:
        async with crowd(served, 1, b"") as late:
            assert await is_closed(late[0])
        peers[0][1].write(b"localhost\r\n\r\n")
        assert await answer_of(peers[0])


async def test_address_with_fewer_connections_gets_places_of_those_with_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 60.0)
    half = connections.MOST // 2
    async with (
        serving() as (served, _),
        crowd(served, half, b"") as one,
        crowd(served, half, b"", "127.0.0.2") as two,
        crowd(served, half + 1, b"", "127.0.0.3"),
    ):
        for peer in (one[0], two[0]):
            assert await is_closed(peer)
        sizes = Counter(each.network for each in served.server._connections._open)
        assert sorted(sizes.values()) == [10, 11, 11]


async def page() -> bytes:
    """More than a socket takes."""
    return bytes(8_000_000)


@pytest.mark.parametrize("first", [b"", HALF], ids=["silence", "half a request"])
async def test_a_request_has_a_deadline(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.05)
    async with serving() as (served, _), crowd(served, 1, first) as peers:
        assert await is_closed(peers[0])


async def test_half_sent_second_request_is_closed_at_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    async with serving() as (served, _), crowd(served, 1, WHOLE) as peers:
        assert await answer_of(peers[0])
        peers[0][1].write(WHOLE)
        assert await answer_of(peers[0])
        peers[0][1].write(HALF)
        assert await is_closed(peers[0])


async def test_idle_connection_and_unread_answer_are_closed_at_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.05)
    monkeypatch.setattr(connections, "ANSWER_S", 0.05)
    async with serving() as (served, _):
        monkeypatch.setattr(served.scrapes, "_render", page)
        async with crowd(served, 1, WHOLE) as idle, crowd(served, 1, WHOLE.replace(b"livez", b"metrics")) as deaf:
            assert await is_closed(idle[0])
            assert await is_closed(deaf[0])


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET /" + b"a" * 50_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000,
    ],
    ids=["no header", "a long line", "many headers"],
)
async def test_malformed_http_is_closed_and_logged_without_traceback(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (served, client), crowd(served, 1, sent) as peers:
        assert await is_closed(peers[0])
        async with client.get("/livez") as answer:
            assert answer.status == 200
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]


async def test_closed_admin_connections_free_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (served, _):
        for _ in range(3):
            async with crowd(served, connections.MOST, HALF):
                pass
        await until(lambda: not served.server._connections._open)


async def test_fault_in_one_admin_connection_leaves_others_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.05)
    monkeypatch.setattr(connections, "AFTER_FAULT_S", 0.05)
    wheres = ("receive a connection to the admin port", "a connection to the admin port is overdue")
    with capture_logs():
        sabotage = Sabotage(monkeypatch, *wheres)
        async with serving() as (served, client), crowd(served, 2, b"") as peers:
            for peer in peers:
                assert await is_closed(peer)
            async with client.get("/livez") as answer:
                assert answer.status == 200
    assert [sabotage.counted(where) for where in wheres] == [1, 1]
