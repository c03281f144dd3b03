"""The whole program in one loop, before a stand-in for a broker: readiness, reloads, stopping."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config.loader import load_settings
from protocol.locator import Endpoint
from proxy import worker
from proxy.brokers.metadata import Metadata
from proxy.runtime.faults import counts
from proxy.supervisor import Supervisor
from tests.harness.fake_broker import API_VERSIONS, FakeBroker, fake_broker
from tests.harness.polling import until
from tests.harness.ports import free_ports
from tests.proxy.front import TIMEOUT_S, client, end_background
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets, request

pytestmark = pytest.mark.asyncio

CONFIG = """\
cluster: {{name: test, bootstrap: ["127.0.0.1:{broker}"], refresh: 50ms}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{bind}", advertise: 127.0.0.1, brokers: {{"1": "{port}"}}{more}}}
quotas: {{store: {{path: quotas.yaml}}, mode: {mode}}}
admin: {{bind: "127.0.0.1:{admin}"}}
drain: {{delay: 0s, timeout: 1s}}
"""
QUOTAS = "quotas:\n  - {entity: {client-id: app}, producer_byte_rate: 1KiB}\n"


class Running:
    def __init__(
        self, folder: Path, broker_port: int, mode: str, more: str, sections: str = "", text: str = CONFIG
    ) -> None:
        self.bind, self.port, self.admin = free_ports(3)
        ports = {"bind": self.bind, "port": self.port, "admin": self.admin}
        text = text.format(broker=broker_port, mode=mode, more=more, **ports) + sections
        self.quotas = folder / "quotas.yaml"
        self.quotas.write_text(QUOTAS)
        self.config = folder / "sluice.yaml"
        self.config.write_text(text)
        self.app = Supervisor(load_settings(self.config), self.config, "asyncio")
        self.task = asyncio.ensure_future(self.app.run())

    @property
    def worker(self) -> worker.Worker:
        """The one worker of the program."""
        assert isinstance(self.app._worker, worker.Worker)
        return self.app._worker

    async def get(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=TIMEOUT_S)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        return await asyncio.to_thread(ask)

    async def until(self, path: str, wanted: str) -> str:
        """Return the answer of ``path`` once it holds ``wanted``."""

        async def look() -> str:
            try:
                return (await self.get(path))[1]
            except OSError as error:
                return str(error)

        text: str = await until(look, f"{wanted} of {path}", is_so=lambda text: wanted in text)
        return text

    def stop(self) -> None:
        self.app.on_stop_signal()


@asynccontextmanager
async def running(
    folder: Path,
    broker: FakeBroker | None,
    mode: str = "enforce",
    more: str = "",
    sections: str = "",
    text: str = CONFIG,
) -> AsyncIterator[Running]:
    """Run with ``more`` settings of the listener, and further ``sections``."""
    program = Running(folder, broker.port if broker else 1, mode, more, sections, text)
    loop = asyncio.get_running_loop()
    try:
        yield program
    finally:
        if not program.task.done():
            program.stop()
        async with asyncio.timeout(TIMEOUT_S):
            await program.task
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            loop.remove_signal_handler(number)
        await end_background()


async def test_ready_once_the_cluster_is_known(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking:
                await asking.ask(list_offsets(1))
            metrics = (await program.get("/metrics"))[1]
            assert 'sluice_requests_total{api="ListOffsets"} 1.0' in metrics
            assert "sluice_quotas_configured 1.0" in metrics


async def test_more_connections_than_open_files_keep_it_from_starting(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with running(tmp_path, None, sections="limits: {connections: 999999999}\n") as program:
            async with asyncio.timeout(TIMEOUT_S):
                assert await program.task == 1
    (line,) = [line for line in logs if line["event"] == "cannot start"]
    assert "limits.connections: 999999999 connections need" in line["error"]
    assert "LimitNOFILE" in line["error"]


async def test_not_ready_says_why(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        text = await program.until("/readyz", "cluster test")
        assert "127.0.0.1:1" in text
        assert (await program.get("/readyz"))[0] == 503
        assert (await program.get("/livez"))[0] == 200


async def test_not_ready_where_no_broker_has_a_port(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = {7: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            text = await program.until("/readyz", "no broker has a port")
            assert "listener PLAIN" in text
            assert "sluice_ready 0.0" in (await program.get("/metrics"))[1]


@pytest.mark.long
async def test_readiness_is_a_metric(tmp_path: Path) -> None:
    async with fake_broker() as one:
        port, one.silent = one.port, True
        async with running(tmp_path, one) as program:
            await program.until("/metrics", "sluice_ready 0.0")
            one.drop()
            one.silent = False
            metrics = await program.until("/metrics", "sluice_ready 1.0")
            assert 'sluice_broker_reachable{broker="1"} 1.0' in metrics, port


@pytest.mark.long
async def test_an_edit_is_in_force_and_a_broken_one_leaves_the_old_limits(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        await program.until("/metrics", "sluice_quotas_configured 1.0")
        program.quotas.write_text(QUOTAS + "  - {entity: {client-id: b}, producer_byte_rate: 1}\n")
        await program.until("/metrics", "sluice_quotas_configured 2.0")
        program.quotas.write_text("quotas:\n  - {entity: {client-id: c}, producer_byte_rat: 1}\n")
        metrics = await program.until("/metrics", "sluice_quota_reload_error_info{")
        assert "sluice_quotas_configured 2.0" in metrics
        assert "quotas.yaml:2:" in metrics
        assert "producer_byte_rate" in metrics
        program.quotas.write_text(QUOTAS)
        metrics = await program.until("/metrics", "sluice_quotas_configured 1.0")
        assert "sluice_quota_reload_error_info{" not in metrics


async def test_sighup_loads_the_quotas_again(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        await program.until("/metrics", 'sluice_quota_reloads_total{outcome="ok"} 1.0')
        os.kill(os.getpid(), signal.SIGHUP)
        await program.until("/metrics", 'sluice_quota_reloads_total{outcome="ok"} 2.0')


async def test_sighup_says_what_of_the_settings_waits_for_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        await program.until("/livez", "ok")
        text = program.config.read_text()
        with capture_logs() as logs:
            program.config.write_text(text.replace("delay: 0s", "delay: 1s"))
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: any(line["event"].startswith("settings changed") for line in logs))
            (changed,) = (line for line in logs if line["event"].startswith("settings changed"))
            assert changed["settings"] == ["drain.delay"]
        assert program.app._settings.drain.delay_s == 0


@pytest.mark.long
async def test_certificates_are_loaded_again_on_change_and_on_sighup(tmp_path: Path, pki: Pki) -> None:
    reloads = 'sluice_certificate_reloads_total{listener="PLAIN",outcome='
    async with running(tmp_path, None, more=", tls: {certificate: tls.crt, key: tls.key}") as program:
        before = await program.until("/metrics", reloads + '"ok"} 0.0')
        pki.issue("127.0.0.1", "another.name")
        after = await program.until("/metrics", reloads + '"ok"} 1.0')
        pki.key.write_text("nothing")
        await program.until("/metrics", reloads + '"failed"} 1.0')
        os.kill(os.getpid(), signal.SIGHUP)
        await program.until("/metrics", reloads + '"failed"} 2.0')
        expiry = re.compile(r'sluice_certificate_expiry_timestamp_seconds\{listener="PLAIN"\} (.+)')
        assert all(float(found) > 1e9 for text in (before, after) for found in expiry.findall(text) or [0])


async def test_the_rules_of_the_listener_name_the_user(tmp_path: Path, pki: Pki) -> None:
    tls = "certificate: tls.crt, key: tls.key, client_ca: ca.pem, client_authentication: required"
    rules = "'RULE:^CN=([^,]+),OU=.*$/$1/U'"
    async with fake_broker() as one:
        more = f", tls: {{{tls}, principal_mapping_rules: {rules}}}"
        async with running(tmp_path, one, more=more) as program:
            await program.until("/readyz", "ready")
            async with client(program.port, pki.client("alice")) as asking:
                await asking.ask(list_offsets(1))
                peer = "{}:{}".format(*asking.writer.get_extra_info("sockname"))
                (item,) = json.loads((await program.get(f"/api/v1/connections?peer={peer}"))[1])["items"]
                assert (item["user"], item["authenticated"], item["mechanism"]) == ("ALICE", True, None)


async def test_a_certificate_that_is_missing_at_the_start_ends_with_1(tmp_path: Path) -> None:
    async with running(tmp_path, None, more=", tls: {certificate: tls.crt, key: tls.key}") as program:
        assert await program.task == 1


async def test_off_puts_no_quota_in_force(tmp_path: Path) -> None:
    async with running(tmp_path, None, mode="off") as program:
        await program.until("/metrics", "sluice_quotas_configured 0.0")


async def test_a_stop_drains_and_ends_with_0(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking:
                await asking.ask(list_offsets(1))
                program.stop()
                assert await asking.closed()
                assert await program.task == 0


async def test_sigterm_first_says_so_and_serves_on_until_the_delay_is_over(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            program.app._delay_s = TIMEOUT_S
            await program.until("/readyz", "ready")
            os.kill(os.getpid(), signal.SIGTERM)
            await program.until("/readyz", "stopping")
            async with client(program.port) as newcomer:
                await newcomer.ask(list_offsets(1))
                assert (await program.get("/readyz"))[0] == 503
                assert "sluice_ready 0.0" in (await program.get("/metrics"))[1]
                assert (await program.get("/livez"))[0] == 200
                program.stop()  # which does not wait any longer
                assert await newcomer.closed()
            assert await program.task == 1


async def test_the_admin_port_is_there_while_connections_are_drained(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as stuck:
                await stuck.ask(list_offsets(1))
                one.silent = True
                stuck.writer.write(list_offsets(2))
                await stuck.writer.drain()
                os.kill(os.getpid(), signal.SIGTERM)
                await program.until("/readyz", "stopping")
                await until(lambda: not any(listener._acceptor.open for listener in program.worker._listeners))
                assert (await program.get("/readyz"))[0] == 503


async def test_ctrl_c_does_not_wait_for_load_balancers(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        program.app._delay_s = TIMEOUT_S
        await program.until("/livez", "ok")
        os.kill(os.getpid(), signal.SIGINT)
        assert await program.task == 0


async def test_a_stop_that_ends_the_workers_before_they_serve_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at a terminal reaches the workers too, also while they start."""
    async with running(tmp_path, None) as program:

        async def end(*_: object) -> None:
            program.stop()
            raise ConnectionError("the other process has ended")

        monkeypatch.setattr(program.app, "_start", end)
        with capture_logs() as logs:
            assert await program.task == 0
        assert [line["event"] for line in logs if line["log_level"] == "error"] == []


async def test_a_second_signal_ends_at_once_with_1(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as stuck:
                await stuck.ask(list_offsets(1))
                one.silent = True
                stuck.writer.write(list_offsets(2))
                await stuck.writer.drain()
                await asyncio.sleep(0.05)
                program.stop()
                await asyncio.sleep(0)
                program.stop()
                assert await program.task == 1
                assert await stuck.closed()


async def test_a_wrong_quota_file_at_the_start_ends_with_2(tmp_path: Path) -> None:
    async with running(tmp_path, None) as program:
        program.quotas.write_text("quotas: 5\n")
        assert await program.task == 2


async def test_a_taken_admin_port_ends_with_1(tmp_path: Path) -> None:
    async with running(tmp_path, None) as first:
        await first.until("/livez", "ok")
        (tmp_path / "second").mkdir()
        async with running(tmp_path / "second", None) as second:
            taken = load_settings(tmp_path / "sluice.yaml").admin
            admin = second.app._admin
            admin._settings = admin._settings.model_copy(update={"admin": taken})
            assert await second.task == 1


@pytest.mark.long
async def test_the_mode_is_turned_by_the_file_by_signals_and_over_the_admin_port(tmp_path: Path) -> None:
    """And each usage record says the mode that was in force while it was counted."""
    (tmp_path / "token").write_text("0123456789abcdef")
    usage = "usage: {interval: 1h, files: {directory: usage, rotate_after: 1h}}\n"
    modes: list[str] = []

    def post(program: Running, mode: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", program.admin, timeout=TIMEOUT_S)
        try:
            connection.request("POST", "/mode", mode, {"Authorization": "Bearer 0123456789abcdef"})
            return connection.getresponse().status
        finally:
            connection.close()

    async with fake_broker() as one:
        admin = 'admin: {{bind: "127.0.0.1:{admin}"'
        text = CONFIG.replace(admin, admin + ", token_file: token")
        assert text != CONFIG
        async with running(tmp_path, one, sections=usage, text=text) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking:

                async def used(mode: str) -> None:
                    await program.until("/metrics", f'sluice_quota_mode{{mode="{mode}"}} 1.0')
                    await asking.ask(list_offsets(len(modes)))
                    modes.append(mode)

                await used("enforce")
                written = program.config.read_text()
                program.config.write_text(written.replace("mode: enforce", "mode: shadow"))
                await used("shadow")
                assert await asyncio.to_thread(post, program, "off") == 200
                await used("off")
                await program.until("/metrics", "sluice_quotas_configured 0.0")
                os.kill(os.getpid(), signal.SIGUSR2)
                await used("shadow")
                await program.until("/metrics", "sluice_quotas_configured 1.0")
                program.config.write_text(written)
                await used("enforce")
                os.kill(os.getpid(), signal.SIGUSR1)
                await used("shadow")
                assert "sluice_quota_mode_changes_total 5.0" in (await program.get("/metrics"))[1]
    lines = [line for file in (tmp_path / "usage").iterdir() for line in file.read_bytes().splitlines()]
    documents = sorted((json.loads(line) for line in lines), key=lambda document: document["seq"])
    assert [document["mode"] for document in documents] == modes
    assert [sum(document["rows"]["requests"]) for document in documents] == [1] * len(modes)


async def test_ports_of_brokers_open_and_close_when_the_file_changes(tmp_path: Path) -> None:
    async with fake_broker() as one:
        one.brokers = dict.fromkeys((1, 7), ("127.0.0.1", one.port))
        async with running(tmp_path, one) as program:
            await program.until("/metrics", 'sluice_brokers_without_port{listener="PLAIN"} 1.0')
            assert (await program.get("/readyz"))[0] == 200
            (port,) = free_ports(1)
            before = program.config.read_text()
            program.config.write_text(before.replace('brokers: {"1"', f'brokers: {{"7": "{port}", "1"'))
            await program.until("/metrics", 'sluice_brokers_without_port{listener="PLAIN"} 0.0')
            async with client(program.port) as kept, client(port) as lost:
                for each in (kept, lost):
                    await each.ask(list_offsets(1))
                program.config.write_text(before)
                assert await lost.closed()
                await kept.ask(list_offsets(1))
            await program.until("/metrics", 'sluice_brokers_without_port{listener="PLAIN"} 1.0')
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), TIMEOUT_S)


async def test_sessions_at_a_closed_port_that_cannot_be_drained_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> int:
        raise ValueError

    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with running(tmp_path, one) as program:
            await program.until("/readyz", "ready")
            async with client(program.port) as asking:
                await asking.ask(list_offsets(1))
                monkeypatch.setattr(worker, "drain", fail)
                before = counts["drain sessions that are let go"]
                (port,) = free_ports(1)
                program.config.write_text(program.config.read_text().replace(f'"{program.port}"', f'"{port}"'))
                await until(lambda: counts["drain sessions that are let go"] != before)
                await asking.ask(list_offsets(1))
            async with client(port) as moved:
                await moved.ask(list_offsets(1))
            monkeypatch.undo()


async def test_brokers_of_before_have_their_ports_at_the_start(tmp_path: Path) -> None:
    """Nobody can be asked who the brokers are: they demand a login, and the proxy has none."""
    no_login = ", authentication: sasl"
    state = CONFIG.replace("refresh: 50ms", "refresh: 50ms, state: state/brokers.json")
    async with fake_broker() as one:
        del one.answers[API_VERSIONS]
        async with running(tmp_path, one, more=no_login, text=state) as program:
            await program.until("/readyz", "ready")
            for cluster in program.worker._routes.clusters:
                await cluster.take(Metadata("id", [Endpoint(1, b"127.0.0.1", one.port, 0, 0, 0)]))
        assert '"cluster_id": "id"' in (tmp_path / "state" / "brokers.json").read_text()
        async with running(tmp_path, one, more=no_login, text=state) as program:
            await program.until("/metrics", 'sluice_state_file_operations_total{outcome="loaded"} 1.0')
            async with client(program.port) as asking:
                asking.writer.write(request(18, 0, 4711))
                assert await asking.closed()  # for what the stand-in answers
            assert any(b"\0\0\x12\x67" in each for each in one.requests)
