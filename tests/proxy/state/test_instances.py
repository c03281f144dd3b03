"""``?all=1``: two whole programs that know each other, one that cannot be reached, and one whose port is not known."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.runtime.http_get import get_unsigned
from proxy.state import instances
from tests.harness.ports import free_port
from tests.proxy.front import client
from tests.proxy.playbook import produce
from tests.proxy.state.test_program import ask, ready
from tests.proxy.test_supervisor import Running

pytestmark = pytest.mark.asyncio


@contextmanager
def group(*programs: Running, others: dict[str, tuple[str, int] | None]) -> Iterator[None]:
    """Let programs know each other, as ``edge-0``, ``edge-1``, …, and ``others``."""
    known = {f"edge-{number}": ("127.0.0.1", each.admin) for number, each in enumerate(programs)}
    for number, each in enumerate(programs):
        name = f"edge-{number}"
        answers: Any = each.app._admin._program.state
        answers._instance = name
        answers._others = lambda name=name: {other: at for other, at in (known | others).items() if other != name}
    yield


async def test_state_of_all_instances_includes_unreachable_ones(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for each in folders:
        each.mkdir()
    dead = ("127.0.0.1", free_port())
    async with (
        ready(folders[0]) as one,
        ready(folders[1]) as other,
        client(one.port) as here,
        client(other.port) as there,
    ):
        await here.ask(produce(1, 20_000))
        await there.ask(produce(1, 10, client_id=b"b"))
        await there.ask(produce(2, 30_000))
        with group(one, other, others={"edge-8": dead, "edge-9": None}):
            answer = await ask(one, "throttled", all=1)
            assert [each["instance"] for each in answer["items"]] == ["edge-1", "edge-0"]  # the longest first
            assert answer["total"] == 2
            errors = {each["instance"]: each["error"] for each in answer["instances"]}
            assert (errors["edge-0"], errors["edge-1"]) == (None, None)
            assert str(dead[1]) in errors["edge-8"]
            assert "not known" in errors["edge-9"]

            answer = await ask(other, "clients", all=1, sort="client_id", limit=1, offset=1)
            assert (answer["total"], answer["offset"], len(answer["items"])) == (3, 1, 1)
            assert answer["items"][0]["client_id"] == "app"
            answer = await ask(one, "clients", all=1, client_id="b")
            assert [each["instance"] for each in answer["items"]] == ["edge-1"]
            for resource in ("quotas", "workers", "brokers", "changes", "usage", "connections"):
                answer = await ask(one, resource, all=1)
                assert answer["total"] == len(answer["items"]), resource
            assert "instances" not in await ask(one, "clients", all=0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "is not understood"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot\xffjson!", "is not understood"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{"total":1,"items":["a"]}', "is not understood"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "more than"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"total":"1","items":[]}', "is not understood"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\n{"total":1,"items":[{"user":"a"}]}', "is not understood"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answers with status 404"),
        (b"", "does not answer within 0.05 s"),
    ],
)
async def test_malformed_answer_of_instance_is_reported_as_error(
    answer: bytes, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await reader.read()
        writer.close()

    if not answer:
        monkeypatch.setattr(instances, "ANSWER_S", 0.05)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        at = server.sockets[0].getsockname()[:2]
        (heard,) = await instances.ask_all(
            lambda: {"edge-1": at}, get_unsigned, "clients", {"user": "a&all=1", "limit": "5"}
        )
    assert (heard.instance, heard.total, heard.items) == ("edge-1", 0, [])
    assert error in str(heard.error)
    assert asked[0].startswith(b"GET /api/v1/clients?user=a%26all%3D1&limit=5 HTTP/1.0\r\nHost: localhost\r\n")


async def test_without_other_instances_all_is_this_one(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        status, text = await program.get("/api/v1/brokers?all=1")
        assert (status, json.loads(text)["instances"]) == (200, [{"instance": None, "error": None}])


CLIENT = {
    "listener": "A",
    "user": "u",
    "client_id": "c",
    "connections": 1,
    "is_throttled": False,
    "kind": None,
    "bytes_in_per_s": 1.5,
    "bytes_out_per_s": 2,
    "broker": 1,
    "rule": None,
    "used": None,
    "limit": None,
    "ratio": 0.5,
    "throttled_share_1m": 0,
    "worker": None,
    "instance": None,
}


@pytest.mark.parametrize(
    ("changed", "passes"),
    [
        ({}, True),
        ({"of_a_newer_version": [1]}, True),
        ({"ratio": "0.5"}, False),
        ({"ratio": [1]}, False),
        ({"user": {"name": "u"}}, False),
        ({"connections": True}, False),
    ],
)
async def test_item_of_another_instance_is_checked_by_the_schema_of_its_row(
    changed: dict[str, object], passes: bool
) -> None:
    """Items are sorted with others and shown: a type that does not fit was an internal error."""
    body = json.dumps({"total": 1, "items": [CLIENT | changed]}).encode()
    if passes:
        assert instances._read("edge-1", "clients", body).items == [CLIENT | {"instance": "edge-1"}]
    else:
        with pytest.raises(ValidationError):
            instances._read("edge-1", "clients", body)
