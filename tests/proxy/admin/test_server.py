import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from config.units import Address
from proxy.admin.endpoints import Scrapes, health
from proxy.admin.metrics import Renderer
from proxy.admin.series import divide
from proxy.admin.server import AdminServer, Hosts
from proxy.snapshot import Snapshot
from tests.harness.ports import free_port
from tests.proxy.snapshots import EMPTY, PRODUCE, shows

pytestmark = pytest.mark.asyncio


class Served:
    """An admin server of a proxy that is as the test says."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.reasons: list[str] = []
        self.snapshots = 0
        self.scrapes = Scrapes(self.snapshot, Renderer(divide(20_000)))
        routes = {**health(self.not_ready, nothing), **self.scrapes.routes()}
        self.server = AdminServer(Address("127.0.0.1", port), routes, Hosts())

    async def not_ready(self) -> list[str]:
        return self.reasons

    async def snapshot(self) -> Snapshot:
        self.snapshots += 1
        return shows(PRODUCE)


async def empty() -> Snapshot:
    return EMPTY


async def nothing() -> list[str]:
    return []


async def broken() -> Snapshot:
    raise ZeroDivisionError


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Served, aiohttp.ClientSession]]:
    served = Served(free_port())
    await served.server.start()
    try:
        async with aiohttp.ClientSession(served.url) as client:
            yield served, client
    finally:
        await served.server.stop()


async def test_metrics_request_returns_prometheus_text_with_client_series() -> None:
    async with serving() as (_, client), client.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'client_id="greedy"' in await answer.text()


async def test_livez_request_returns_200_ok() -> None:
    async with serving() as (_, client), client.get("/livez") as answer:
        assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_readyz_request_returns_200_when_ready() -> None:
    async with serving() as (_, client), client.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (200, "ready\n")


async def test_not_ready_says_why() -> None:
    async with serving() as (served, client):
        served.reasons = ["stopping", "cluster demo: no broker\nanswers"]
        async with client.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "stopping\ncluster demo: no broker answers\n")


async def test_readyz_as_json_lists_reasons_when_not_ready() -> None:
    async with serving() as (served, client):
        for reasons in ([], ["stopping"]):
            served.reasons = reasons
            async with client.get("/readyz", headers={"Accept": "application/json"}) as answer:
                assert answer.status == (503 if reasons else 200)
                assert json.loads(await answer.text()) == {"ready": not reasons, "reasons": reasons}


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz"])
async def test_head_answers_without_a_body(path: str) -> None:
    async with serving() as (_, client), client.head(path) as answer:
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) > 0
        assert await answer.read() == b""


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/livez/x", "/%00"])
async def test_unknown_path_returns_404_and_lists_resources(path: str) -> None:
    async with serving() as (_, client), client.get(path) as answer:
        assert answer.status == 404
        assert {"/metrics", "/livez", "/readyz"} < set((await answer.text()).splitlines())


async def test_post_to_metrics_returns_405_without_rendering() -> None:
    async with serving() as (served, client), client.post("/metrics", data=b"x" * 100_000) as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"
        assert served.snapshots == 0


async def test_long_request_lines_and_headers_are_refused() -> None:
    async with serving() as (_, client):
        async with client.get("/livez?" + "x" * 10_000) as answer:
            assert answer.status == 400
        async with client.get("/livez", headers={"X": "x" * 20_000}) as answer:
            assert answer.status == 400
        async with client.get("/livez") as answer:
            assert answer.status == 200


async def test_scrapes_at_the_same_time_share_one_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def render(renderer: object, snapshot: Snapshot) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        begun.set()
        assert go_on.wait(10)
        return b"rendered"

    monkeypatch.setattr("proxy.admin.endpoints.Renderer.text", render)
    async with serving() as (served, client):
        waiting = [asyncio.create_task(_read(client)) for _ in range(5)]
        await asyncio.to_thread(begun.wait, 10)
        async with client.get("/livez") as answer:
            assert answer.status == 200, "the loop turns while metrics are rendered"
        go_on.set()
        assert await asyncio.gather(*waiting) == [b"rendered"] * 5
        shared = served.snapshots
        assert shared < 5
        assert await _read(client) == b"rendered"
        assert served.snapshots == shared + 1


async def test_a_failed_rendering_is_an_error_and_the_next_one_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (served, client):
        monkeypatch.setattr(served.scrapes, "_snapshot", broken)
        async with client.get("/metrics") as answer:
            assert answer.status == 500
        monkeypatch.setattr(served.scrapes, "_snapshot", empty)
        async with client.get("/metrics") as answer:
            assert answer.status == 200


async def test_a_request_without_host_asks_no_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", asked.append)
    async with serving() as (served, _):
        for path in served.server._routes:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.0 ")
            writer.close()
    assert asked == []


async def test_a_port_that_is_taken_is_named() -> None:
    async with serving() as (served, _):
        port = int(served.url.rpartition(":")[2])
        with pytest.raises(OSError, match=rf"^admin\.bind 127\.0\.0\.1:{port}: address already in use$"):
            await Served(port).server.start()


async def test_admin_bind_to_foreign_address_fails_with_the_setting() -> None:
    server = AdminServer(Address("192.0.2.1", 9404), {}, Hosts())
    with pytest.raises(
        OSError, match=r"admin\.bind 192\.0\.2\.1:9404: (cannot assign requested address|could not bind)"
    ):
        await server.start()


async def test_stop_frees_the_port() -> None:
    served = Served(free_port())
    for _ in range(2):
        await served.server.start()
        await served.server.stop()
        served = Served(int(served.url.rpartition(":")[2]))


async def _read(client: aiohttp.ClientSession) -> bytes:
    async with client.get("/metrics") as answer:
        return await answer.read()
