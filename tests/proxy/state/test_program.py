"""The state of a whole program, before stand-ins for brokers, as the admin port tells it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from proxy import __version__
from proxy.usage import metering
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, client
from tests.proxy.playbook import heartbeat, list_offsets, produce
from tests.proxy.test_supervisor import Running, running

pytestmark = pytest.mark.asyncio

HOSTILE = '"><b>\u202e\u0000 é'


@asynccontextmanager
async def ready(folder: Path, mode: str = "enforce") -> AsyncIterator[Running]:
    async with fake_broker() as broker:
        broker.brokers = {1: ("127.0.0.1", broker.port)}
        async with running(folder, broker, mode) as program:
            await program.until("/readyz", "ready")
            yield program


async def ask(program: Running, resource: str, **parameters: object) -> Any:
    status, text = await program.get(f"/api/v1/{resource}?{urlencode(parameters)}")
    assert status == 200, text
    return json.loads(text)


async def test_throttled_producer_is_listed_with_rule_limit_and_waiting(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        before = datetime.now(UTC)
        async with client(program.port) as one, client(program.port) as two:
            await one.ask(produce(1, 30_000))  # of 10 KiB in ten seconds: owed for some twenty
            two.writer.write(produce(2, 1000))
            answer = await until(
                lambda: ask(program, "throttled"),
                is_so=lambda answer: answer["total"] and answer["items"][0]["waiting"],
            )
            (item,) = answer["items"]
            assert item["kind"] == "producer_byte_rate"
            assert (item["user"], item["client_id"], item["broker"], item["listener"]) == (None, "app", 1, "PLAIN")
            assert (item["rule"], item["limit"], item["mode"]) == ("client-id=app", 1024.0, "enforce")
            assert item["used"] > item["limit"]
            assert item["ratio"] == item["used"] / item["limit"]
            assert item["wanted"] >= item["used"]
            assert 1000 < item["owed_ms"] <= 30_000
            assert item["waiting"] == 1
            assert datetime.fromisoformat(item["until"]) > before
            peers = ["{}:{}".format(*each.writer.get_extra_info("sockname")) for each in (one, two)]
            assert (sorted(item["peers"]), item["more_peers"]) == (sorted(peers), 0)
            assert (item["instance"], item["worker"]) == (None, None)

            (item,) = (await ask(program, "clients"))["items"]
            assert (item["listener"], item["user"], item["client_id"]) == ("PLAIN", "ANONYMOUS", "app")
            assert (item["connections"], item["is_throttled"]) == (2, True)
            assert item["bytes_in_per_s"] > 3000
            assert (item["kind"], item["rule"], item["broker"]) == ("producer_byte_rate", "client-id=app", 1)
            assert item["ratio"] > 1
            assert 0 < item["throttled_share_1m"] <= 1

            answer = await ask(program, "connections")
            assert answer["total"] == 2
            assert {each["peer"] for each in answer["items"]} == set(peers)
            for each in answer["items"]:
                assert each["broker"] == 1
                assert (each["waits_for"]["kind"], each["waits_for"]["rule"]) == ("producer_byte_rate", "client-id=app")
                assert each["waits_for"]["owed_ms"] > 0
                assert each["connected_at"].endswith("Z")
            (item,) = (await ask(program, "connections", peer=peers[1]))["items"]
            assert item["peer"] == peers[1]

            explained = await ask(program, "explain", peer=peers[0])
            produced = explained["items"][0]
            assert (produced["kind"], produced["rule"], produced["limit"]) == (
                "producer_byte_rate",
                "client-id=app",
                1024,
            )
            assert produced["source"].endswith("quotas.yaml:2")
            (won,) = [level for level in produced["levels"] if level["wins"]]
            assert won == {
                "rule": "client-id=app",
                "limit": 1024.0,
                "source": produced["source"],
                "wins": True,
                "is_reached": True,
            }
            assert len(produced["levels"]) == 8

            said = [each["rule"] for each in (await ask(program, "explain", client_id="app"))["items"]]
            assert said == ["client-id=app", None, None, None]
            status, text = await program.get("/api/v1/explain?peer=1.2.3.4:5")
            assert (status, "no connection from '1.2.3.4:5'" in text) == (404, True)

            (item,) = (await ask(program, "brokers"))["items"]
            assert (item["node_id"], item["is_reachable"], item["owner"], item["connections"]) == (1, True, None, 2)
            (item,) = (await ask(program, "workers"))["items"]
            assert (item["worker"], item["is_up"], item["connections"]) == (None, True, 2)


async def test_a_client_of_a_counter_of_many_is_found(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        program.quotas.write_text("quotas: [{entity: {user: ANONYMOUS}, producer_byte_rate: 1KiB}]\n")
        await program.until("/api/v1/quotas", "ANONYMOUS")
        async with client(program.port) as asking:
            await asking.ask(produce(1, 30_000))
            assert (await ask(program, "throttled"))["items"][0]["client_id"] is None
            assert (await ask(program, "throttled", user="ANONYMOUS", client_id="app"))["total"] == 1
            assert (await ask(program, "throttled", user="ANONYMOUS", client_id=""))["total"] == 1
            assert (await ask(program, "throttled", user="ANONYMOUS"))["total"] == 1
            assert (await ask(program, "throttled", user="bob"))["total"] == 0
            assert (await ask(program, "throttled", client_id="app"))["total"] == 0


async def test_shadow_mode_lists_throttled_client_that_is_not_held(tmp_path: Path) -> None:
    async with ready(tmp_path, "shadow") as program, client(program.port) as asking:
        for number in range(3):
            await asking.ask(produce(number, 30_000))
        (item,) = (await ask(program, "throttled"))["items"]
        assert (item["mode"], item["limit"], item["rule"]) == ("shadow", 1024.0, "client-id=app")
        assert (item["owed_ms"] > 0, item["waiting"], len(item["peers"])) == (True, 2, 1)
        assert item["wanted"] == item["used"]
        (item,) = (await ask(program, "connections"))["items"]
        assert item["waits_for"] is None


async def test_client_over_shadow_rule_is_listed_with_mode_shadow(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        rule = "{entity: {client-id: app}, producer_byte_rate: 1KiB, mode: shadow}"
        program.quotas.write_text(f"quotas: [{rule}]\n")
        await until(
            lambda: ask(program, "quotas"),
            is_so=lambda answer: answer["total"] and answer["items"][0]["mode"] == "shadow",
        )
        async with client(program.port) as asking:
            await asking.ask(produce(1, 30_000))
            (item,) = (await ask(program, "throttled"))["items"]
            assert (item["mode"], item["limit"]) == ("shadow", 1024.0)
            assert item["ratio"] > 1


async def test_address_over_connection_rate_is_listed_as_throttled(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        program.quotas.write_text("quotas: [{entity: {ip: 127.0.0.1}, connection_creation_rate: 1}]\n")
        await program.until("/api/v1/quotas", "127.0.0.1")
        held: list[Any] = []

        async def throttled() -> Any:
            held.append(client(program.port))
            await held[-1].__aenter__()
            return (await ask(program, "throttled"))["items"]

        while not (items := await throttled()):
            pass
        for each in held:
            await each.__aexit__(None, None, None)
        assert (items[0]["kind"], items[0]["rule"]) == ("connection_creation_rate", "ip=127.0.0.1")
        assert (items[0]["user"], items[0]["client_id"], items[0]["peers"]) == (None, None, ["127.0.0.1"])
        assert items[0]["waiting"] >= 1


async def test_hostile_client_ids_are_listed_and_found_unchanged(tmp_path: Path) -> None:
    async with ready(tmp_path) as program, client(program.port) as asking:
        for name in (HOSTILE.encode(), b"\xff\xfe", b""):
            await asking.ask(produce(1, 10, client_id=name))
        found = [each["client_id"] for each in (await ask(program, "clients", sort="client_id"))["items"]]
        assert found == [HOSTILE, "\ufffd\ufffd", None]
        assert (await ask(program, "clients", client_id=HOSTILE))["total"] == 1
        assert (await ask(program, "clients", client_id=""))["total"] == 1
        assert (await ask(program, "clients", q="\u202e"))["total"] == 1


async def test_quota_edit_is_listed_in_quotas_and_changes(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        (item,) = (await ask(program, "quotas"))["items"]
        assert item["source"].endswith("quotas.yaml:2")
        assert (item["entity"], item["rule"], item["limit"]) == ({"client-id": "app"}, "client-id=app", 1024.0)
        assert (item["scope"], item["mode"], item["changed_at"]) == ("broker", "enforce", None)
        program.quotas.write_text(
            "quotas:\n"
            "  - {entity: {client-id: app}, producer_byte_rate: 2KiB}\n"
            '  - {entity: {user: "\\u202e", client-id: {default: true}}, request_percentage: 5}\n'
        )
        answer = await until(lambda: ask(program, "changes"), is_so=lambda answer: answer["total"] == 2)
        changed = {each["kind"]: each for each in answer["items"]}["producer_byte_rate"]
        assert (changed["old"], changed["new"], changed["who"], changed["quota"]) == (
            1024,
            2048,
            "file",
            "client-id=app",
        )
        (item,) = (await ask(program, "quotas", client_id="app"))["items"]
        assert (item["changed_at"], item["changed_by"]) == (changed["at"], "file")
        (item,) = (await ask(program, "quotas", kind="request_percentage"))["items"]
        assert item["entity"] == {"user": "\u202e", "client-id": {"default": True}}


async def test_a_temporary_limit_is_named_as_such(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        entity, kind = Entity(client_id="app"), QuotaKind.PRODUCER_BYTE_RATE
        await program.app._quotas.temporary.set(entity, kind, 2048.0, 60_000, "alice", "test")
        (item,) = (await ask(program, "quotas"))["items"]
        assert (item["limit"], item["changed_by"]) == (2048.0, "alice")
        assert item["source"].startswith("temporary, until ")
        explained = (await ask(program, "explain", client_id="app"))["items"][0]
        assert (explained["limit"], explained["source"]) == (2048.0, item["source"])


async def test_under_a_request_percentage_a_muted_connection_is_told(tmp_path: Path) -> None:
    async with ready(tmp_path) as program:
        program.quotas.write_text("quotas: [{entity: {client-id: app}, request_percentage: 0.001}]\n")
        await program.until("/api/v1/quotas", "request_percentage")
        async with client(program.port) as asking:

            async def throttled() -> Any:
                asking.writer.write(heartbeat(1))
                return (await ask(program, "throttled"))["items"]

            async with asyncio.timeout(TIMEOUT_S):
                while not (items := await throttled()):
                    pass
            assert (items[0]["kind"], items[0]["rule"]) == ("request_percentage", "client-id=app")
            assert items[0]["owed_ms"] <= 10_000
            assert len(items[0]["peers"]) == 1


async def test_usage_lists_points_of_last_hour_per_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "_SAMPLE_EVERY_S", 0.01)
    async with ready(tmp_path) as program, client(program.port) as asking:
        await asking.ask(produce(1, 30_000))
        answer = await until(
            lambda: ask(program, "usage"), is_so=lambda answer: answer["total"] and answer["items"][0]["points"]
        )
        (item,) = answer["items"]
        assert (item["user"], item["client_id"], item["listener"]) == ("ANONYMOUS", "app", "PLAIN")
        point = item["points"][0]
        assert point["bytes_in_per_s"] * 60 == pytest.approx(30_000, rel=0.01)
        assert (point["ratio"] > 1, point["throttled_share"] > 0, point["at"].endswith("Z")) == (True, True, True)
        assert (await ask(program, "usage", client_id="other"))["total"] == 0
        answer = await until(
            lambda: ask(program, "usage", user="ANONYMOUS"),
            is_so=lambda answer: len(answer["items"][0]["points"]) == 60,
        )
        times = [each["at"] for each in answer["items"][0]["points"]]
        assert times == sorted(times)


async def test_instance_shows_version_mode_and_reasons_for_unreadiness(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        await program.until("/livez", "ok")
        item = await ask(program, "instance")
        assert (item["version"], item["cluster"], item["mode"]) == (__version__, "test", "enforce")
        assert (item["is_ready"], item["mode_source"]) == (False, "configuration")
        assert "cluster test" in item["reasons"][0]
        assert item["started_at"] <= item["quotas_loaded_at"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("clients?limit=0", "limit: '0' is not a whole number from 1 to 1000"),
        ("clients?limit=1e3", "limit: '1e3' is not a whole number"),
        ("clients?offset=-1", "offset: '-1' is not a whole number from 0"),
        ("clients?offset=" + "9" * 200, "is not a whole number"),
        ("clients?sort=shoe", "sort: 'shoe' is not a field to sort by; allowed: listener, user"),
        ("connections?sort=waits_for", "is not a field to sort by"),
        ("clients?kind=byte_rate", "kind: 'byte_rate' is no quota kind; allowed: producer_byte_rate"),
        ("throttled?broker=one", "broker: 'one' is not a whole number"),
        ("clients?peer=1", "'peer' is not a parameter here; allowed: limit, offset, sort, user"),
        ("clients?limit=1&limit=2", "'limit' is given twice"),
        ("clients?all=yes", "all: allowed are 1"),
        ("instance?q=1", "'q' is not a parameter here; allowed: none"),
        ("clients?user=" + "x" * 257, "user: is longer than 256 characters"),
        ("clients?all=1&offset=950", "offset: with all=1"),
    ],
)
async def test_invalid_query_parameters_get_status_400_with_reason(tmp_path: Path, path: str, said: str) -> None:
    async with running(tmp_path, None) as program:
        await program.until("/livez", "ok")
        status, text = await program.get(f"/api/v1/{path}")
        assert (status, list(json.loads(text))) == (400, ["error"])
        assert said in json.loads(text)["error"]
        assert len(text) < 600


async def test_clients_are_paged_by_limit_offset_and_sort(tmp_path: Path) -> None:
    async with ready(tmp_path) as program, client(program.port) as asking:
        for number in range(5):
            await asking.ask(list_offsets(number))
            await asking.ask(produce(number, 1000 * number, client_id=b"c%d" % number))

        async def names(**parameters: object) -> list[str]:
            answer = await ask(program, "clients", **parameters)
            assert (answer["total"], answer["offset"]) == (6, parameters.get("offset", 0))
            return [each["client_id"] for each in answer["items"]]

        assert (await names(sort="-bytes_in_per_s"))[:4] == ["c4", "c3", "c2", "c1"]
        assert await names(sort="client_id", limit=2, offset=1) == ["c0", "c1"]
        assert (await names())[0] == "app"  # the only one with a quota: unknown ratios come last
        assert (await names(sort="ratio"))[0] == "app"
        assert await names(offset=6) == []


async def test_owners_are_told_while_the_worker_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forever = asyncio.Event()
    async with ready(tmp_path) as program:
        with monkeypatch.context() as hanging:
            hanging.setattr(program.worker, "report", forever.wait)
            async with asyncio.timeout(1):
                said = await ask(program, "owners")
        assert said == dict.fromkeys(("instance", "boot", "state", "epoch", "age_s", "error")) | {
            "owners": {},
            "others": {},
        }
