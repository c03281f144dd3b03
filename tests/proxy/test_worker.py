"""The seam between supervisor and worker: all that crosses it is plain data, and the program runs on copies of it."""

import asyncio
import json
import pickle
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from inspect import isfunction
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from config.brokers import Endpoint
from config.settings import Settings
from protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Altering,
    Describing,
    Op,
    QuotaEntry,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)
from protocol.requests import Request
from proxy import supervisor
from proxy.contract import InForce, Report
from proxy.edge.quota_requests import Ask
from proxy.owners.map import OwnersMap
from proxy.owners.membership import MemberState, Status
from proxy.runtime.faults import counts
from proxy.snapshot import WorkerSnapshot
from proxy.state.paging import Query
from proxy.state.rows import Page
from proxy.usage.records import Columns
from proxy.worker import Worker
from tests.harness.fake_broker import fake_broker
from tests.proxy.front import TIMEOUT_S, client
from tests.proxy.playbook import list_offsets, produce, request
from tests.proxy.test_supervisor import CONFIG, running

pytestmark = pytest.mark.asyncio

T = TypeVar("T")

METADATA = request(3, 1, 9, b"\0\0\0\0")
CROSSED: set[str] = set()


def across(what: T) -> T:
    """Return what arrives in another process."""
    CROSSED.add(type(what).__name__)
    arrived: T = pickle.loads(pickle.dumps(what))  # noqa: S301  our own
    return arrived


class Elsewhere(Worker):
    """A worker that has nothing but copies of what it is given, and gives nothing but copies."""

    def __init__(self, settings: Settings, bind: Callable[[str, int], list[socket.socket]], ask: Ask) -> None:
        async def ask_across(frame: bytes, user: str, client_id: str, peer: str) -> bytes:
            return across(await ask(*across((frame, user, client_id, peer))))

        super().__init__(across(settings), bind, ask_across)

    def put(self, in_force: InForce) -> Coroutine[Any, Any, None]:
        return super().put(across(in_force))

    async def report(self) -> Report:
        return across(await super().report())

    async def snapshot(self) -> WorkerSnapshot:
        return across(await super().snapshot())

    async def page(self, resource: str, query: Query) -> Page:
        return across(await super().page(*across((resource, query))))

    async def usage(self) -> AsyncIterator[tuple[Columns, int | None]]:
        async for taken in super().usage():
            yield across(taken)

    async def close_connections(self, user: str | None, client_id: str | None, peer: str | None) -> int:
        return across(await super().close_connections(across(user), across(client_id), across(peer)))

    async def drain(self, timeout_s: float) -> int:
        return across(await super().drain(across(timeout_s)))

    async def stop(self) -> int:
        return across(await super().stop())


async def test_worker_receives_and_returns_only_plain_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = {name for name, each in vars(Worker).items() if isfunction(each) and not name.startswith("_")}
    assert public - vars(Elsewhere).keys() == {"kill"}  # which takes nothing and gives nothing
    monkeypatch.setattr(supervisor, "Worker", Elsewhere)
    CROSSED.clear()
    usage = "usage: {interval: 20ms, files: {directory: usage, rotate_after: 50ms}}\n"
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one, sections=usage) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking:
                await asking.ask(list_offsets(1))
                await asking.ask(produce(2, 600))
                for resource in ("throttled", "clients", "connections", "brokers", "workers"):
                    assert (await program.get(f"/api/v1/{resource}"))[0] == 200
                metrics = (await program.get("/metrics"))[1]
                assert 'sluice_requests_total{api="ListOffsets"} 1.0' in metrics
                assert 'sluice_sessions{listener="PLAIN"} 1.0' in metrics
                assert 'sluice_quota_limit_bytes_per_second{broker="1",client_id="app"' in metrics
                program.quotas.write_text("quotas: []\n")
                await program.until("/metrics", "sluice_quotas_configured 0.0")
                program.app.on_stop_signal(signal.SIGINT)
                assert await asking.closed()
            assert await program.task == 0
    lines = [line for file in (tmp_path / "usage").iterdir() for line in file.read_bytes().splitlines()]
    rows = [json.loads(line)["rows"] for line in lines]
    assert sum(sum(each["requests"]) for each in rows) == 2
    assert {rule for each in rows for rule in each["produce_rule"]} >= {"client-id=app"}
    assert {"Settings", "InForce", "Report", "WorkerSnapshot", "Page"} <= CROSSED


@pytest.mark.long
async def test_an_edited_quota_of_an_address_is_in_force_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "Worker", Elsewhere)
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one, sections="limits: {connection_rate: 100}\n") as program:
            await program.until("/readyz", "ready")
            program.quotas.write_text(
                "quotas:\n"
                '  - {entity: {ip: "::ffff:127.0.0.1"}, connection_creation_rate: 1}\n'
                "  - {entity: {ip: {default: true}}, connection_creation_rate: 5}\n"
            )
            await program.until("/metrics", "sluice_quotas_configured 2.0")
            clients = [socket.create_connection(("127.0.0.1", program.port)) for _ in range(13)]
            metrics = await program.until("/metrics", 'sluice_ip_accept_throttles_total{listener="PLAIN"} 3.0')
            assert 'sluice_ip_accept_rate_limit{ip="127.0.0.1",rule="ip=127.0.0.1"} 1.0' in metrics
            assert 'sluice_frames_rejected_total{cause="connection_rate_per_ip",side="client"} 3.0' in metrics
            assert "sluice_accept_rate_limit 100.0" in metrics
            for each in clients[10:]:
                each.settimeout(TIMEOUT_S)
                assert await asyncio.to_thread(each.recv, 1) == b""  # closed when its time is over
            program.quotas.write_text("quotas: []\n")
            await program.until("/metrics", "sluice_quotas_configured 0.0")
            async with client(program.port) as asking:
                await asking.ask(list_offsets(1))
            for each in clients:
                each.close()


@pytest.mark.long
async def test_requests_are_charged_while_a_request_percentage_is_configured_and_not_without_one_again(
    tmp_path: Path,
) -> None:
    """Also those of a connection that was there before."""
    percentage = "quotas:\n  - {entity: {client-id: a}, request_percentage: 1}\n"
    percentage += "  - {entity: {client-id: {default: true}}, request_percentage: 1000}\n"
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking:

                async def charged(number: int) -> float:
                    await asking.ask(list_offsets(number))
                    metrics = (await program.get("/metrics"))[1]
                    lines = [
                        line for line in metrics.splitlines() if line.startswith("sluice_quota_percent_seconds_total")
                    ]
                    return sum(float(line.split()[-1]) for line in lines)

                assert await charged(1) == 0.0
                program.quotas.write_text(percentage)
                await program.until("/metrics", "sluice_quotas_configured 2.0")
                first = await charged(2)
                assert first > 0.0
                assert await charged(3) > first
                program.quotas.write_text("quotas: []\n")
                await program.until("/metrics", "sluice_quotas_configured 0.0")
                last = await charged(4)
                assert await charged(5) == last


async def test_quotas_are_changed_through_the_port_by_those_who_may_and_by_brokers_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "Worker", Elsewhere)
    named = (("client-id", "app"),)
    altering = Altering((QuotaEntry(named, (Op("producer_byte_rate", 2048.0),)),))
    for admins, error_code in (("[admin]", 31), ("[admin, ANONYMOUS]", 0)):
        async with fake_broker() as one:
            config = CONFIG.replace("mode: {mode}", f"mode: {{mode}}, admins: {admins}")
            async with running(tmp_path, one, text=config) as program:
                await program.until("/readyz", "ready")
                async with client(program.port) as asking:
                    answer = await asking.ask(alter_request(altering).frame("tool", 1))
                    assert [each.error_code for each in read_altered(bytes(4) + answer)] == [error_code]
                    answer = await asking.ask(describe_request(Describing()).frame("tool", 2))
                    if not error_code:
                        (described,) = read_described(bytes(4) + answer).entries
                        assert (described.entity, described.limits) == (named, (("producer_byte_rate", 2048.0),))
                    changes = json.loads((await program.get("/api/v1/changes"))[1])["items"]
                    told = [(each["who"], each["client_id"], each["old"], each["new"]) for each in changes]
                    assert told == ([] if error_code else [("ANONYMOUS", "tool", 1024.0, 2048.0)])
                    outcome = "unauthorized" if error_code else "made"
                    metrics = (await program.get("/metrics"))[1]
                    assert f'sluice_quota_changes_total{{outcome="{outcome}"}} 1.0' in metrics
                    asked = {int.from_bytes(each[:2], "big") for each in one.requests} & {DESCRIBE, ALTER}
                    assert asked == ({DESCRIBE} if error_code else set()), "who is no admin sees the broker's quotas"


async def test_an_alter_that_cannot_be_read_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    config = CONFIG.replace("mode: {mode}", "mode: {mode}, admins: [ANONYMOUS]")
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one, text=config) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking, client(program.port) as other:
                asking.writer.write(Request(ALTER, 0, b"\xff\xff\xff\x7f").frame("tool", 1))
                assert await asking.closed()
                await other.ask(list_offsets(1))
            metrics = (await program.get("/metrics"))[1]
            assert 'sluice_frames_rejected_total{cause="bad_body",side="client"} 1.0' in metrics


FIXED = 'owners: {instance: here, fixed: {here: "1"}}\n'
MOVED = OwnersMap(((range(1, 2), "there"),), {"there": {"PLAIN": Endpoint("there.test", 1, None)}}, ("there",))


async def test_a_broker_that_moves_is_told_at_once_and_its_sessions_are_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "Worker", Elsewhere)
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one, sections=FIXED) as program:
            await program.until("/readyz", "ready")
            own = program.app._put_owners
            async with client(program.port) as of_broker, client(program.bind) as bootstrap:
                for each in (of_broker, bootstrap):
                    await each.ask(list_offsets(1))
                assert (await program.worker.report()).node_ids == (1,)
                own(MOVED, False)
                assert await of_broker.closed()
                assert await bootstrap.closed()
            async with client(program.bind) as asking:
                assert b"there.test" in await asking.ask(METADATA)
            own(MOVED, True)
            own(OwnersMap(((range(1, 2), "here"),), {}, ("here",)), False)
            async with client(program.port) as again:
                await again.ask(produce(1, 10))
                assert program.port.to_bytes(4, "big") in await again.ask(METADATA)


async def test_owners_that_the_file_names_anew_own_at_once(tmp_path: Path) -> None:
    async with fake_broker() as one:
        there = 'there: {brokers: "IDS", advertise: {PLAIN: there.test}}'
        section = 'owners: {instance: here, fixed: {here: "1", THERE}}\n'.replace("THERE", there)
        async with running(tmp_path, one, sections=section.replace("IDS", "2")) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking, client(program.bind) as bootstrap:
                await asking.ask(list_offsets(1))
                assert program.port.to_bytes(4, "big") in await bootstrap.ask(METADATA)
                moved = section.replace('here: "1"', 'here: "2"').replace("IDS", "1")
                text = program.config.read_text()
                program.config.write_text(text[: text.index("owners:")] + moved)
                assert await asking.closed()
            async with client(program.bind) as bootstrap:
                assert b"there.test" in await bootstrap.ask(METADATA)


async def test_owners_that_cannot_be_told_are_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> int:
        raise ValueError

    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one, sections=FIXED) as program:
            await program.until("/readyz", "ready")
            own, worker = program.app._put_owners, program.worker
            async with client(program.port) as asking:
                await asking.ask(list_offsets(1))
                monkeypatch.setattr("proxy.worker.drain", fail)
                monkeypatch.setattr(worker._listeners[0].addresses, "tell_owners", fail_at_once)
                own(MOVED, False)
                monkeypatch.undo()
                await asyncio.sleep(0)
                await asking.ask(list_offsets(2))
                own(OwnersMap(((range(1, 2), "here"),), {}, ("here",)), False)
                own(MOVED, False)
                assert await asking.closed()
            program.app._others.group = owners = FakeOwners()  # type: ignore[assignment]  # a fake
            said = json.loads((await program.get("/api/v1/owners"))[1])
            assert (said["epoch"], said["owners"]) == (3, {"1": "here", "2": "here", "3": "there"})
            metrics = (await program.get("/metrics"))[1]
            assert "sluice_owned_brokers 2.0" in metrics
            assert 'sluice_owners_moves_total{direction="lost"} 1.0' in metrics
            owners.why_not_ready = "owners: no broker"
            assert "owners: no broker" in (await program.get("/readyz"))[1]
            program.app.on_stop_signal(signal.SIGTERM)
            assert await program.task == 0
            assert owners.has_stepped_down
    names = ("drain sessions that are let go", "tell the owners of brokers")
    ends = ("have brokers owned by others", "leave the group of instances")
    assert [counts.pop(name) for name in (*names, *ends)] == [1, 1, 1, 1]


def fail_at_once() -> None:
    raise ValueError


class FakeOwners:
    """A group of instances that cannot be left."""

    status = Status("here", 1, MemberState.MEMBER, 3, {1: "here", 2: "here", 3: "there"}, 0.5, 2, 1, None)
    why_not_ready: str | None = None
    has_stepped_down = False
    peers: ClassVar[dict[str, tuple[int, tuple[str, int] | None]]] = {"there": (1, None)}

    @property
    def member(self) -> "FakeOwners":
        return self

    async def step_down(self) -> None:
        self.has_stepped_down = True
        raise ValueError

    async def leave(self) -> None:
        raise ValueError


async def test_no_owners_are_named_without_a_group(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        await program.until("/livez", "ok")
        said = json.loads((await program.get("/api/v1/owners"))[1])
        assert (said["state"], said["owners"], said["others"]) == (None, {}, {})
