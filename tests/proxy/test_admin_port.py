"""All paths of the admin port, over everything that it may be asked by."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from config.loader import load_settings
from proxy.admin.server import PROBES, AdminServer
from proxy.admin_port import Program, admin_server
from proxy.control.mode import ModeSwitch
from proxy.control.temporary_limits import TemporaryLimits
from quotas.policy import Policy
from tests.harness.ports import free_port
from tests.proxy.admin.test_server import empty, nothing
from tests.proxy.page.fake_state import FakeState

pytestmark = pytest.mark.asyncio

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

    async def owners() -> dict[str, Any]:
        return {}

    temporary = TemporaryLimits(renew, lambda *_: None)
    mode = ModeSwitch("enforce", change)
    return Program(fake, mode, temporary, empty, nothing, nothing, close, tuple, owners, lambda _: b"signed")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[AdminServer, aiohttp.ClientSession]]:
    file, port = folder / "sluice.yaml", free_port()
    file.write_text(CONFIG.format(port=port))
    server = admin_server(load_settings(file), program())
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()


async def test_every_path_but_the_probes_refuses_a_page_whose_name_was_rebound_to_this_address(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, client):
        for path in (*server._routes, "/no/such/path"):
            async with client.get(path, headers={"Host": "rebound.example:9404"}) as answer:
                said = await answer.text()
            assert (answer.status == 403) is (path not in PROBES), path
            assert ("admin.hosts" in said) is (path not in PROBES), path
            assert answer.content_type == ("application/json" if path.startswith("/api/") else "text/plain")


@pytest.mark.parametrize(
    "host", ["kafka.example.com", "KAFKA.example.com.:1", "10.0.0.1", "[::1]:9404", "admin.example.com", "localhost"]
)
async def test_names_of_the_operator_are_accepted(tmp_path: Path, host: str) -> None:
    async with serving(tmp_path) as (_, client):
        for name in (host, socket.gethostname()):
            async with client.get("/metrics", headers={"Host": name}) as answer:
                assert answer.status == 200
