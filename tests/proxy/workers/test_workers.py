"""The whole program with two workers, in processes of their own, before stand-ins for brokers."""

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from protocol.client_quotas import (
    ALTER,
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
from proxy.workers.child import Child
from proxy.workers.workers import Workers
from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.harness.ports import free_port
from tests.proxy.front import TIMEOUT_S, answers, client
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets, produce, request
from tests.proxy.test_supervisor import CONFIG, Running, running

pytestmark = [pytest.mark.asyncio, pytest.mark.long]

METADATA = request(3, 1, 9, b"\0\0\0\0")
SLUICE = str(Path(sys.executable).parent / "sluice")
USAGE = "usage: {interval: 20ms, files: {directory: usage, rotate_after: 50ms}}\n"


@dataclass
class Pair:
    """A program with two workers, each with a broker."""

    program: Running
    ports: dict[int, int]
    """By node id."""
    owners: dict[int, int]
    """Node id → worker."""

    @property
    def workers(self) -> Workers:
        workers = self.program.app._worker
        assert isinstance(workers, Workers)
        return workers

    def child_of(self, node_id: int) -> Child:
        return self.workers._children[self.owners[node_id]]

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to the worker of a broker."""
        process = self.child_of(node_id)._process
        assert process is not None
        os.kill(process.running.pid, number)

    async def until_up(self, node_id: int, restarts: int) -> None:
        child = self.child_of(node_id)
        await until(lambda: (child.up, child.restarts), equals=(True, restarts))


@asynccontextmanager
async def two_workers(
    folder: Path, one: FakeBroker, two: FakeBroker, sections: str = "", config: str = CONFIG
) -> AsyncIterator[Pair]:
    one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
    second = free_port()
    text = config.replace('{{"1": "{port}"}}', f'{{{{"1": "{{port}}", "2": "{second}"}}}}')
    async with running(folder, one, sections="workers: 2\n" + sections, text=text) as program:
        await program.until("/readyz", "ready")
        told = json.loads(await program.until("/api/v1/brokers", '"node_id":2'))["items"]
        owners = {each["node_id"]: each["worker"] for each in told}
        assert sorted(owners.values()) == [0, 1]
        yield Pair(program, {1: program.port, 2: second}, owners)


async def test_two_workers_serve_brokers_metrics_and_usage_as_one(tmp_path: Path) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two, USAGE) as pair:
        program, ports = pair.program, pair.ports
        async with client(ports[1]) as at_one, client(ports[2]) as at_two, client(program.bind) as bootstrap:
            for number, each in enumerate((at_one, at_two, bootstrap)):
                await each.ask(list_offsets(number))
                told = await each.ask(METADATA)
                assert all(port.to_bytes(4, "big") in told for port in ports.values())
            await at_one.ask(produce(2, 600))
            peer = "{}:{}".format(*at_two.writer.get_extra_info("sockname"))
            (item,) = json.loads((await program.get(f"/api/v1/connections?peer={peer}"))[1])["items"]
            assert (item["listener"], item["worker"]) == ("PLAIN", pair.owners[2])
            metrics = (await program.get("/metrics"))[1]
            assert 'sluice_requests_total{api="ListOffsets"} 3.0' in metrics
            assert 'sluice_sessions{listener="PLAIN"} 3.0' in metrics
            assert all(f'sluice_worker_up{{worker="{number}"}} 1.0' in metrics for number in range(2))
            program.quotas.write_text("quotas: []\n")
            await program.until("/metrics", "sluice_quotas_configured 0.0")
            program.app.on_stop_signal(signal.SIGINT)
            assert await at_one.closed()
            assert await at_two.closed()
        assert await program.task == 0
    lines = [line for file in (tmp_path / "usage").iterdir() for line in file.read_bytes().splitlines()]
    documents = [json.loads(line) for line in lines]
    assert sum(sum(each["rows"]["requests"]) for each in documents) == 7
    assert {each["worker"] for each in documents if each["rows"]["listener"]} == {0, 1}
    assert len({each["seq"] for each in documents}) == len(documents)


async def test_the_state_of_all_workers_is_one_list(tmp_path: Path) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        program, ports = pair.program, pair.ports

        async def items(path: str) -> list[dict[str, object]]:
            status, text = await program.get(f"/api/v1/{path}")
            assert status == 200, text
            answer = json.loads(text)
            found: list[dict[str, object]] = answer["items"]
            assert answer["total"] >= len(found)
            return found

        async with client(ports[1]) as at_one, client(ports[2]) as at_two, client(ports[2]) as again:
            for number, each in enumerate((at_one, at_two, again)):
                await each.ask(produce(number, 100 * (number + 1)))
            found = [(each["worker"], each["connections"]) for each in await items("clients?sort=-connections")]
            assert found == [(None, 3)], "one client, at brokers of both"
            assert len(await items("connections?limit=2")) == 2
            assert {each["worker"] for each in await items("connections")} == {0, 1}
            assert [each["worker"] for each in await items("connections?limit=1&offset=2")] == [pair.owners[2]]
            brokers = [(each["node_id"], each["worker"], each["connections"]) for each in await items("brokers")]
            assert brokers == [(1, pair.owners[1], 1), (2, pair.owners[2], 2)]
            assert [each["node_id"] for each in await items("brokers?limit=1&offset=1&sort=-connections")] == [1]
            workers = await items("workers")
            assert [(each["worker"], each["is_up"], each["restarts"]) for each in workers] == [
                (0, True, 0),
                (1, True, 0),
            ]
            assert sum(int(str(each["connections"])) for each in workers) == 3
            assert len(await items("quotas")) == 1


async def test_two_workers_at_one_tls_port(tmp_path: Path) -> None:
    hosts = 'b{{node_id}}.kafka.test", tls: {{certificate: tls.crt, key: tls.key}}'
    config = CONFIG.replace('brokers: {{"1": "{port}"}}', f'broker_host: "{hosts}')
    pki = Pki(tmp_path)
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two, config=config) as pair:
        for number, node_id in enumerate((1, 2) * 4):
            async with client(pair.program.bind, pki.client(), f"b{node_id}.kafka.test") as asking:
                await asking.ask(list_offsets(number))
        metrics = (await pair.program.get("/metrics"))[1]
        assert 'sluice_connections_total{listener="PLAIN",outcome="accepted"} 8.0' in metrics
        assert [len([frame for frame in each.requests if frame[:2] == b"\0\2"]) for each in (one, two)] == [4, 4]


async def test_a_killed_worker_is_back_with_all_that_is_in_force_and_the_other_goes_on(tmp_path: Path) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        program, ports = pair.program, pair.ports
        program.quotas.write_text("quotas: [{entity: {client-id: app}, producer_byte_rate: 2KiB}]\n")
        async with client(ports[1]) as at_one, client(ports[2]) as at_two:
            for each in (at_one, at_two):
                await each.ask(list_offsets(1))
            await program.until("/metrics", 'sluice_requests_total{api="ListOffsets"} 2.0')
            pair.signal(1, signal.SIGKILL)
            assert await at_one.closed()
            async with client(ports[1]) as waiting:  # accepted by the kernel, whether the worker is there or not
                await waiting.ask(list_offsets(2))
                await at_two.ask(list_offsets(2))
                await waiting.ask(produce(3, 600))
                metrics = await program.until("/metrics", 'sluice_requests_total{api="ListOffsets"} 4.0')
        assert pair.child_of(1).restarts == 1
        assert pair.child_of(2).restarts == 0
        assert f'sluice_worker_restarts_total{{worker="{pair.owners[1]}"}} 1.0' in metrics
        limits = [line for line in metrics.splitlines() if line.startswith("sluice_quota_limit_bytes_per_second{")]
        assert [(line.split('broker="')[1][0], line.split()[-1]) for line in limits] == [("1", "2048.0")]


async def test_an_edit_through_one_worker_and_the_mode_are_in_force_in_all(tmp_path: Path) -> None:
    config = CONFIG.replace("mode: {mode}", "mode: {mode}, admins: [ANONYMOUS]")
    altering = Altering((QuotaEntry((("client-id", "app"),), (Op("producer_byte_rate", 100.0),)),))
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two, config=config) as pair:
        program, ports = pair.program, pair.ports
        async with client(ports[1]) as at_one, client(ports[2]) as at_two:
            answer = await at_one.ask(alter_request(altering).frame("tool", 1))
            assert [each.error_code for each in read_altered(bytes(4) + answer)] == [0]
            described = read_described(bytes(4) + await at_two.ask(describe_request(Describing()).frame("tool", 2)))
            assert [limits for each in described.entries for limits in each.limits] == [("producer_byte_rate", 100.0)]
            os.kill(os.getpid(), signal.SIGUSR1)
            await program.until("/metrics", 'sluice_quota_mode{mode="shadow"} 1.0')
            for each in (at_one, at_two):
                await each.ask(produce(3, 5000))  # over the quota: to throttle it, its answer would be looked into
            metrics = (await program.get("/metrics"))[1]
            limits = [line for line in metrics.splitlines() if line.startswith("sluice_quota_limit_bytes_per_second{")]
            assert [line.split()[-1] for line in limits] == ["100.0", "100.0"]
            malformed = Request(ALTER, 0, b"\xff\xff\xff\x7f").frame("tool", 5)
            at_two.writer.write(malformed)
            assert await at_two.closed()
            await program.until("/metrics", 'sluice_frames_rejected_total{cause="bad_body",side="client"} 1.0')


async def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        with capture_logs() as logs:
            pair.signal(2, signal.SIGSTOP)
            async with client(pair.ports[1]) as asking:
                await asking.ask(list_offsets(1))
            await pair.until_up(2, restarts=1)
        (said,) = [line for line in logs if line["event"] == "worker does not answer: killing it"]
        assert said["worker"] == pair.owners[2]
        async with client(pair.ports[2]) as asking:
            await asking.ask(list_offsets(1))


async def test_metrics_do_not_wait_for_a_worker_that_hangs_and_lose_no_count_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "kill", lambda _: None)
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        program, hanging = pair.program, pair.owners[2]
        async with client(pair.ports[1]) as at_one, client(pair.ports[2]) as at_two:
            for each in (at_one, at_two):
                await each.ask(list_offsets(1))
            pair.signal(2, signal.SIGSTOP)
            await program.until("/readyz", f"worker {hanging}: does not answer")
            metrics = (await program.get("/metrics"))[1]
            assert f'sluice_worker_up{{worker="{hanging}"}} 0.0' in metrics
            await at_one.ask(list_offsets(2))
            pair.signal(2, signal.SIGCONT)
            await at_two.ask(list_offsets(2))
            metrics = await program.until("/metrics", 'sluice_requests_total{api="ListOffsets"} 4.0')
            assert sum(shown_bytes(metrics)) == sum(4 + len(each) for each in client_frames(one, two))
        assert pair.child_of(2).restarts == 0


def client_frames(*brokers: FakeBroker) -> list[bytes]:
    return [frame for each in brokers for frame in each.requests if frame[:2] in (b"\0\0", b"\0\2")]


def shown_bytes(metrics: str) -> list[float]:
    lines = [line for line in metrics.splitlines() if line.startswith("sluice_client_bytes_total{")]
    return [float(line.split()[-1]) for line in lines if 'direction="in"' in line]


async def test_a_worker_ignores_the_signals_that_a_terminal_sends_to_all(tmp_path: Path) -> None:
    async with (
        fake_broker() as one,
        fake_broker() as two,
        two_workers(tmp_path, one, two) as pair,
        client(pair.ports[1]) as asking,
    ):
        await asking.ask(list_offsets(1))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            pair.signal(1, number)
        await asking.ask(list_offsets(2))
        assert pair.child_of(1).restarts == 0


async def test_a_broker_that_one_worker_finds_is_reached_at_another(tmp_path: Path) -> None:
    """Brokers 3 and 4 are named in an answer to a client alone: one of them is the other worker's."""
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        program = pair.program
        third, fourth = free_port(), free_port()
        text = program.config.read_text().replace('"2":', f'"3": "{third}", "4": "{fourth}", "2":')
        program.config.write_text(text)
        one.brokers = two.brokers = {**one.brokers, 3: ("127.0.0.1", one.port), 4: ("127.0.0.1", two.port)}
        async with client(pair.ports[1]) as asking:
            await asking.ask(METADATA)

        async def are_placed() -> bool:
            told = json.loads(await program.until("/api/v1/brokers", '"node_id":4'))["items"]
            return sorted(str(each["worker"]) for each in told) == ["0", "0", "1", "1"]

        await until(are_placed)  # a broker has no worker in the moment when one has just found it
        for port in (third, fourth):
            await until(partial(answers, port))


async def test_a_worker_that_cannot_start_keeps_the_program_from_starting(tmp_path: Path) -> None:
    with capture_logs() as logs:
        sections = "workers: 2\nlimits: {connections: 999999999}\n"
        async with running(tmp_path, None, sections=sections) as program:
            async with asyncio.timeout(TIMEOUT_S):
                assert await program.task == 1
    (line,) = [line for line in logs if line["event"] == "cannot start"]
    assert "LimitNOFILE" in line["error"]


async def test_workers_serve_on_without_the_supervisor_and_drain_on_sigterm(tmp_path: Path) -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        bind, first, second, admin = (free_port() for _ in range(4))
        text = CONFIG.replace('{{"1": "{port}"}}', f'{{{{"1": "{first}", "2": "{second}"}}}}')
        text = text.format(broker=one.port, bind=bind, admin=admin, mode="enforce", more="") + "workers: 2\n"
        (tmp_path / "sluice.yaml").write_text(text)
        (tmp_path / "quotas.yaml").write_text("quotas: []\n")
        arguments = ("run", "-c", str(tmp_path / "sluice.yaml"))
        with (tmp_path / "log").open("w") as log:
            supervisor = await asyncio.create_subprocess_exec(SLUICE, *arguments, stderr=log)
        workers: list[psutil.Process] = []
        try:
            async with asyncio.timeout(TIMEOUT_S):
                brokers = lambda: asyncio.to_thread(asked, admin, "/api/v1/brokers")  # noqa: E731
                await until(brokers, is_so=lambda told: '"node_id":2' in told)
                children = psutil.Process(supervisor.pid).children
                workers = await until(children, is_so=lambda found: len(found) >= 2)
                async with client(first) as at_one, client(second) as at_two:
                    for each in (at_one, at_two):
                        await each.ask(list_offsets(1))
                    supervisor.kill()
                    await supervisor.wait()
                    for each in (at_one, at_two):
                        await each.ask(list_offsets(2))
                    async with client(bind) as bootstrap:
                        await bootstrap.ask(list_offsets(1))
                    for process in workers:
                        process.terminate()
                    assert await at_one.closed()
                    assert await at_two.closed()
                gone, _ = await asyncio.to_thread(psutil.wait_procs, workers, timeout=TIMEOUT_S)
                assert len(gone) == len(workers)
        finally:
            for process in workers:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if supervisor.returncode is None:
                supervisor.kill()
                await supervisor.wait()
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert {each.get("worker") for each in lines if each["event"] == "broker found"} == {0, 1}
        assert [each["event"] for each in lines if each.get("worker") is None][-1] == "listening"


def asked(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


async def test_supervisor_with_one_worker_imports_no_workers_module() -> None:
    loaded = "import sys, proxy.supervisor; sys.exit('proxy.workers' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", loaded, env=environment)
    assert await process.wait() == 0
