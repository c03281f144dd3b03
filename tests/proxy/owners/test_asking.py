"""Changes that one instance tells another: signed for it alone, and taken once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from config.units import Address
from proxy.admin.endpoints import of_instances
from proxy.admin.route import RefusedError, Route
from proxy.admin.server import AdminServer, Hosts
from proxy.other_instances import OtherInstances
from proxy.owners.asking import Asking
from proxy.owners.messages import Signing
from tests.harness.ports import free_port

pytestmark = pytest.mark.asyncio

FORM = {"user": "alice", "for": "1h"}


class Instance:
    """One of two members of a group, as far as it tells and hears changes."""

    def __init__(self, name: str, boot: int = 1, secret: bytes = b"secret") -> None:
        self.port = free_port()
        self.member = SimpleNamespace(
            instance=name,
            boot=boot,
            member_id=f"{name}-1",
            signing=Signing(secret, "group"),
            peers={},
            map=SimpleNamespace(ids={}),
        )
        member: Any = self.member
        self.asking = Asking(member)
        group: Any = SimpleNamespace(asking=self.asking)
        self.others = OtherInstances(None)
        self.others.group = group
        self.heard: list[tuple[str, dict[str, str], str, str]] = []
        self.bodies: list[bytes] = []
        self.refuses: RefusedError | None = None

    def knows(self, other: "Instance", boot: int | None = None) -> None:
        at = ("127.0.0.1", other.port)
        self.member.peers[other.member.instance] = (other.member.boot if boot is None else boot, at)
        self.member.map.ids[other.member.instance] = other.member.member_id

    async def hear(self, data: bytes) -> None:
        self.bodies.append(data)
        told = self.others.hear(data)
        if self.refuses is not None:
            raise self.refuses
        self.heard.append((told.what, dict(told.form), told.who, told.source))


@asynccontextmanager
async def two(**of_b: Any) -> AsyncIterator[tuple[Instance, Instance]]:
    a, b = Instance("a"), Instance("b", **of_b)
    a.knows(b)
    b.knows(a)
    server = AdminServer(Address("127.0.0.1", b.port), of_instances(lambda _: None, b.hear), Hosts())
    await server.start()
    try:
        yield a, b
    finally:
        await server.stop()


async def test_change_is_heard_by_the_other_instance_with_who_and_from_where() -> None:
    async with two() as (a, b):
        for who in ("ops", "alice"):
            assert await a.asking.tell("limit", FORM, who, "10.0.0.9") == {"b": None}
        assert b.heard == [("limit", FORM, who, "10.0.0.9") for who in ("ops", "alice")]


async def test_message_seen_on_the_way_is_not_taken_again_nor_by_another() -> None:
    async with two() as (a, b):
        await a.asking.tell("limit", FORM, "ops", "")
        await a.asking.tell("close", FORM, "ops", "")
        for body in b.bodies[:2]:
            with pytest.raises(RefusedError, match="heard before"):
                await b.hear(body)
        again = Instance("b", boot=2)  # after a restart, when it has another member id
        again.member.member_id = "b-2"
        again.knows(a)
        with pytest.raises(RefusedError, match="for another receiver or time"):
            await again.hear(b.bodies[0])
        assert len(b.heard) == 2


async def test_change_of_an_instance_that_has_ended_is_refused() -> None:
    async with two() as (a, b):
        b.knows(a, boot=7)
        said = await a.asking.tell("limit", FORM, "ops", "")
        assert said == {"b": "answers with status 403: a is not the member of this group that it was then"}


async def test_change_signed_with_another_secret_is_refused() -> None:
    async with two(secret=b"other") as (a, b):
        said = await a.asking.tell("limit", FORM, "ops", "")
        assert str(said["b"]).startswith("answers with status 403: not signed with the secret of this instance")
        assert b.heard == []


async def test_instances_that_did_not_make_the_change_are_named_with_the_reason() -> None:
    async with two() as (a, b):
        b.refuses = RefusedError(400, "100 temporary limits are in force: end one first")
        gone, unknown = Instance("c"), Instance("d")
        a.knows(gone)
        a.knows(unknown)
        a.member.peers["d"] = (1, None)
        said = await a.asking.tell("limit", FORM, "ops", "")
        assert said["b"] == "answers with status 400: 100 temporary limits are in force: end one first"
        assert "refused" in str(said["c"])
        assert "admin port is not known" in str(said["d"])


async def test_without_a_group_nobody_is_told_and_nothing_heard() -> None:
    alone = OtherInstances(None)
    assert await alone.tell("limit", FORM, "ops", "") == {}
    with pytest.raises(RefusedError, match=r"owners\.group"):
        alone.hear(b"")


async def test_question_is_signed_for_its_receiver_and_its_path() -> None:
    a, b, c = Instance("a"), Instance("b"), Instance("c")
    a.knows(b)
    seen: list[tuple[str, str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append((request.headers["Authorization"], request.raw_path))
        return web.Response(text="here")

    server = AdminServer(Address("127.0.0.1", b.port), {"/api/v1/clients": Route(answer)}, Hosts())
    await server.start()
    try:
        path = "/api/v1/clients?q=%22a+b&limit=5"
        assert (await a.asking.get("b", ("127.0.0.1", b.port), path, 2.0, 1000)).body == b"here"
    finally:
        await server.stop()
    [(authorization, raw_path)] = seen
    assert raw_path == path
    assert b.asking.is_signed(authorization, raw_path)
    assert not b.asking.is_signed(authorization, raw_path + "0")
    assert not c.asking.is_signed(authorization, raw_path)
    b.member.member_id = "b-2"
    assert not b.asking.is_signed(authorization, raw_path)
    b.member.member_id = ""
    assert not b.asking.is_signed("Sluice-Instance ", raw_path)
