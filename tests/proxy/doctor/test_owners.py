"""What the doctor says of instances that have the same owners, others, or do not answer."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from proxy.checks.health import AdminLogin
from proxy.doctor.findings import DoctorFindings
from proxy.doctor.owners import look_at_owners

pytestmark = pytest.mark.asyncio

OWNERS = {"1": "a", "2": "b"}


def said(name: str, **more: Any) -> dict[str, Any]:
    return {"instance": name, "state": "member", "epoch": 3, "owners": OWNERS, "others": {}, "error": None, **more}


async def looked(answers: list[Mapping[str, Any] | str]) -> list[str]:
    """Look at an admin port for each answer; those of the others are known to the first as ``others``."""
    async with AsyncExitStack() as stack:
        ports: list[int] = []
        for answer in answers[::-1]:
            text = answer
            if not isinstance(answer, str):
                others = {f"i{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports[::-1], 1)}
                text = json.dumps({**answer, "others": others} if answer is answers[0] else answer)

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: str = str(text)) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(f"HTTP/1.0 200 OK\r\n\r\n{body}".encode())
                writer.close()

            server = await stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
            ports.append(server.sockets[0].getsockname()[1])
        found = DoctorFindings()
        await look_at_owners(found, f"127.0.0.1:{ports[-1]}", AdminLogin())
        return [str(each) for each in found.all]


async def test_instances_with_same_owners_are_reported_ok() -> None:
    assert await looked([said("a"), said("i1")]) == [
        "ok    owners       i1 has the same owners as a",
        "ok    owners       a is a member; owners of epoch 3: brokers 1 of a, 2 of b",
    ]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (said("i1", epoch=2, owners={}), "FAIL  owners       i1 is member with epoch 2, a has 3: they do not have the"),
        (said("i1", state="frozen"), "FAIL  owners       i1 is frozen with epoch 3, a has 3: they do not have the"),
        (said("x"), "FAIL  owners       the admin port of i1, 127.0.0.1:"),
        ("no JSON", "warn  owners       i1 was not asked: 127.0.0.1:"),
    ],
)
async def test_instance_with_other_owners_or_no_answer_is_reported(other: Mapping[str, Any] | str, line: str) -> None:
    first, *_ = await looked([said("a"), other])
    assert first.startswith(line)


async def test_fenced_instance_is_reported_with_its_error() -> None:
    (line,) = await looked([said("a", state="fenced", error="it is refused")])
    assert line == "FAIL  owners       a is fenced: it is refused: see its log"
