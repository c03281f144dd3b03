"""The admin port answers as its OpenAPI document says, whatever it is asked."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from proxy.admin.openapi import document
from proxy.state.paging import MOST
from proxy.state.resources import RESOURCES
from tests.proxy.front import client
from tests.proxy.playbook import produce
from tests.proxy.state.test_program import ready

pytestmark = pytest.mark.asyncio

EXAMPLES = 15


async def test_openapi_document_lists_every_resource() -> None:
    paths = document()["paths"]
    assert paths.keys() == {f"/api/v1/{name}" for name in (*RESOURCES, "openapi.json")}
    throttled = paths["/api/v1/throttled"]["get"]
    assert [each["name"] for each in throttled["parameters"]] == list(RESOURCES["throttled"].parameters)
    item = throttled["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["items"]["items"]
    assert item["properties"]["until"] == {"type": "string", "format": "date-time"}
    assert item["properties"]["user"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


def operations(url: str) -> Iterator[Any]:
    found: Any = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json").get_all_operations()
    for each in found:
        yield each.ok()


def check(operation: Any) -> int:
    """Ask for an operation with parameters of all kinds, right and wrong; return how often."""
    asked = 0

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        nonlocal asked
        asked += 1
        query = {name: str(value) for name, value in (case.query or {}).items()}
        numbers = [query.get(name, default) for name, default in (("limit", "100"), ("offset", "0"))]
        beyond = query.get("all") == "1" and all(map(str.isdecimal, numbers)) and sum(map(int, numbers)) > MOST
        case.call_and_validate(excluded_checks=[positive_data_acceptance] if beyond else [])

    run()
    return asked


@pytest.mark.long
async def test_schemathesis_finds_no_error(tmp_path: Path) -> None:
    async with ready(tmp_path) as program, client(program.port) as asking:
        await asking.ask(produce(1, 30_000))
        found = await asyncio.to_thread(lambda: list(operations(f"http://127.0.0.1:{program.admin}")))
        assert {each.path for each in found} >= {f"/api/v1/{name}" for name in RESOURCES}
        for each in found:
            assert await asyncio.to_thread(check, each) > 0


async def test_a_foreign_name_in_host_is_refused(tmp_path: Path) -> None:
    async with ready(tmp_path) as program, aiohttp.ClientSession(f"http://127.0.0.1:{program.admin}") as asking:
        for path in ("clients", "openapi.json"):
            async with asking.get(f"/api/v1/{path}", headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
                assert "admin.hosts" in (await answer.json())["error"]
        async with asking.get("/api/v1/clients", headers={"Host": "localhost:1"}) as answer:
            assert answer.status == 200
            assert answer.headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with asking.post("/api/v1/clients") as answer:
            assert answer.status == 405
