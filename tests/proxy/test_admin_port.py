"""All paths of the admin port, over everything that it may be asked by."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from config.loader import load_settings
from config.settings import Admin, AdminAccess
from proxy.admin import connections
from proxy.admin.access import Access
from proxy.admin.metrics import Renderer
from proxy.admin.server import MOST_OF_A_NETWORK, PROBES, AdminServer
from proxy.admin_port import Program, admin_server
from proxy.control.mode import ModeSwitch
from proxy.control.temporary_limits import TemporaryLimits
from proxy.other_instances import OtherInstances
from proxy.page.changes import Changes
from proxy.snapshot import Snapshot
from quotas.policy import Policy
from tests.harness.polling import until
from tests.harness.ports import free_port
from tests.proxy.admin.test_server import empty, nothing
from tests.proxy.page.fake_state import FakeState
from tests.proxy.snapshots import EMPTY

pytestmark = pytest.mark.asyncio

SIGNED = ("Sluice-Instance ok", "/api/v1/clients?limit=1")

CONFIG = """\
cluster: {{name: test, bootstrap: ["127.0.0.1:1"]}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:9092", advertise: Kafka.example.com, brokers: {{"1": "9100"}}}}
  - {{name: TLS, bind: "127.0.0.1:9093", advertise: "10.0.0.1:443", brokers: {{"1": "9200"}}}}
quotas: {{store: {{path: quotas.yaml}}}}
admin: {{bind: "127.0.0.1:{port}", hosts: [admin.example.com]}}
"""


def program() -> Program:
    """One in which nothing happens."""
    fake: Any = FakeState()

    async def change(_: object) -> None:
        pass

    async def renew() -> tuple[Policy, Policy]:
        return Policy(), Policy()

    async def close(*_: str | None) -> int:
        return 0

    others = FakeOthers(None)
    changes = Changes(TemporaryLimits(renew, lambda *_: None), close, others)
    return Program(fake, ModeSwitch("enforce", change), changes, others, empty, nothing, nothing)


class FakeOthers(OtherInstances):
    """Others that sign one question."""

    def demand(self, _: Mapping[str, str]) -> bytes | None:
        return b"signed"

    def has_signed(self, *asked: str) -> bool:
        return asked == SIGNED


@asynccontextmanager
async def serving(
    folder: Path, running: Program | None = None, admin: Admin | None = None
) -> AsyncIterator[tuple[AdminServer, aiohttp.ClientSession]]:
    file, port = folder / "sluice.yaml", free_port()
    file.write_text(CONFIG.format(port=port))
    server = admin_server(load_settings(file), running or program(), Access(admin or Admin()))
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()


async def test_every_path_but_the_probes_refuses_a_page_whose_name_was_rebound_to_this_address(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, client):
        routes = {path: route.methods for path, route in server._routes.items()} | {"/no/such/path": ("GET", "POST")}
        assert {"/metrics", "/login", "/mode", "/owners/change", "/api/v1/owners", *PROBES} <= routes.keys()
        for path, method in ((path, method) for path, methods in routes.items() for method in methods):
            async with client.request(method, path, headers={"Host": "rebound.example:9404"}) as answer:
                said = await answer.text()
            assert (answer.status == 403) is (path not in PROBES), (method, path)
            assert ("admin.hosts" in said) is (path not in PROBES and method != "HEAD"), (method, path)
            assert answer.content_type == ("application/json" if path.startswith("/api/") else "text/plain")


@pytest.mark.parametrize(
    "host", ["kafka.example.com", "KAFKA.example.com.:1", "10.0.0.1", "[::1]:9404", "admin.example.com", "localhost"]
)
async def test_names_of_the_operator_are_accepted(tmp_path: Path, host: str) -> None:
    async with serving(tmp_path) as (_, client):
        for name in (host, socket.gethostname()):
            async with client.get("/metrics", headers={"Host": name}) as answer:
                assert answer.status == 200


class Slow:
    """Work that goes on until it is told to end."""

    def __init__(self) -> None:
        self.begun = self.under_way = 0
        self.may_end = asyncio.Event()

    async def work(self) -> None:
        self.begun += 1
        self.under_way += 1
        try:
            await self.may_end.wait()
        finally:
            self.under_way -= 1

    async def ask(self, resource: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        await self.work()
        return await FakeState().ask(resource, parameters)

    async def snapshot(self) -> Snapshot:
        await self.work()
        return EMPTY


def slow_program(slow: Slow) -> Program:
    running = replace(program(), snapshot=slow.snapshot)
    running.state.ask = slow.ask  # type: ignore[method-assign]
    return running


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/clients", "/api/v1/explain?user=x", "/quotas"])
async def test_a_thousand_askers_that_go_away_leave_no_work(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 0.0)
    slow = Slow()
    async with serving(tmp_path, slow_program(slow)) as (server, client):
        for _ in range(1000):
            _, writer = await asyncio.open_connection("127.0.0.1", server._bind.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await asyncio.sleep(0)
            writer.transport.abort()
        await until(lambda: not server._work._by_network)
        assert slow.under_way == (path == "/metrics")  # a snapshot is taken to its end, and counted
        slow.may_end.set()
        begun = slow.begun
        async with asyncio.timeout(1):
            async with client.get(path) as answer:
                assert answer.status == 200
        assert slow.begun - begun < 5


async def test_requests_worked_on_are_bounded_but_for_the_probes(tmp_path: Path) -> None:
    slow = Slow()
    async with serving(tmp_path, slow_program(slow)) as (_, client):
        asking = [asyncio.create_task(client.get("/api/v1/clients")) for _ in range(MOST_OF_A_NETWORK)]
        await until(lambda: slow.under_way, equals=MOST_OF_A_NETWORK)
        for path in ("/metrics", "/api/v1/clients", "/"):
            async with client.get(path) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        for path in (*PROBES, "/owners/demand"):
            async with client.get(path) as answer:
                assert answer.status == 200
        slow.may_end.set()
        for each in await asyncio.gather(*asking):
            assert each.status == 200
            each.release()
        async with client.get("/metrics") as answer:
            assert answer.status == 200


async def test_no_metrics_are_written_for_scrapers_that_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, texts = Slow(), []

    def write(_: Renderer, snapshot: Snapshot) -> bytes:
        texts.append(snapshot)
        return b"text"

    monkeypatch.setattr(Renderer, "text", write)
    async with serving(tmp_path, slow_program(slow)) as (server, client):
        leaving = [asyncio.create_task(client.get("/metrics")) for _ in range(3)]
        await until(lambda: slow.under_way)
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await until(lambda: not server._work._by_network)
        slow.may_end.set()
        await until(lambda: not slow.under_way)
        async with client.get("/metrics") as answer:
            assert await answer.read() == b"text"
    assert (len(texts), slow.begun) == (1, 2)


TOKENS = {"ops": "0123456789abcdef-ops", "prometheus": "0123456789abcdef-prom", "admin token": "0123456789abcdef"}


@asynccontextmanager
async def closed(folder: Path) -> AsyncIterator[tuple[AdminServer, aiohttp.ClientSession]]:
    """Serve with an entry that may read, so that all others may not."""
    for name, token in TOKENS.items():
        (folder / name).write_text(token)
    access = [
        AdminAccess(name="ops", token_file=folder / "ops"),
        AdminAccess(name="prometheus", token_file=folder / "prometheus", may=("read",)),
    ]
    admin = Admin(token_file=folder / "admin token", access=tuple(access))
    async with serving(folder, admin=admin) as served:
        yield served


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


async def test_once_somebody_may_only_read_all_paths_but_probes_need_a_token(tmp_path: Path) -> None:
    """Without one only the way to log in is open, and what other instances sign."""
    open_paths = {*PROBES, "/login", "/page.css", "/page.js", "/owners/demand"}
    async with closed(tmp_path) as (server, client):
        for path, route in server._routes.items():
            if "GET" not in route.methods:
                continue
            async with client.get(path) as answer:
                assert (answer.status == 401) is (path not in open_paths), path
                assert answer.headers.get("WWW-Authenticate") == (None if path in open_paths else "Bearer")
            for name in TOKENS:
                async with client.get(path, headers=bearer(name)) as answer:
                    assert answer.status in (200, 404), (path, name)
        async with client.get("/", headers={"Accept": "text/html"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/login")
        async with client.get("/login") as answer:
            text = await answer.text()
            assert "demo" not in text, "the cluster is not told"


async def test_who_may_only_read_changes_nothing(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, client):
        for path in ("/mode", "/limits", "/connections/close"):
            async with client.post(path, data="off", headers=bearer("prometheus")) as answer:
                assert answer.status == 403
                assert "prometheus may not change: see admin.access" in await answer.text()
        async with client.post("/mode", data="off", headers=bearer("ops")) as answer:
            assert answer.status == 200


async def test_who_changed_something_is_named_as_in_the_configuration(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, client):
        for name in ("ops", "admin token"):
            with capture_logs() as logs:
                async with client.post("/connections/close", data={"user": "x"}, headers=bearer(name)) as answer:
                    assert answer.status == 200
            assert logs[0]["who"] == name


async def test_question_signed_by_another_instance_is_answered_without_a_token(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, client):
        authorization, path = SIGNED
        for asked, status in ((path, 200), ("/api/v1/clients?limit=2", 401)):
            async with client.get(asked, headers={"Authorization": authorization}) as answer:
                assert answer.status == status


async def test_login_of_a_reader_shows_pages_and_no_forms(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, client):
        origin = {"Origin": str(client._base_url).rstrip("/")}
        said = {"token": TOKENS["prometheus"]}
        async with client.post("/login", data=said, headers=origin, allow_redirects=False) as answer:
            cookie = answer.cookies["sluice_login"].value
        headers = {"Cookie": f"sluice_login={cookie}"}
        async with client.get("/quotas", headers=headers) as answer:
            assert answer.status == 200
            assert "Switch the mode" not in await answer.text()
        async with client.post("/mode", data="off", headers=origin | headers) as answer:
            assert answer.status == 403


async def test_one_broken_token_file_leaves_the_others_in_force(tmp_path: Path) -> None:
    async with closed(tmp_path) as (_, client):
        (tmp_path / "ops").unlink()
        async with client.get("/metrics", headers=bearer("prometheus")) as answer:
            assert answer.status == 200
        async with client.get("/metrics", headers=bearer("ops")) as answer:
            assert answer.status == 401
