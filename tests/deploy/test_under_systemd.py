"""The program as systemd runs it: with sockets of sluice.socket, and told of each state (docs/scaling.md)."""

import asyncio
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.harness.ports import free_ports
from tests.proxy.front import client
from tests.proxy.playbook import list_offsets

pytestmark = [pytest.mark.asyncio, pytest.mark.long]

TIMEOUT_S: Final = 60.0
SLUICE: Final = str(Path(sys.executable).parent / "sluice")
CONFIG: Final = """\
cluster: {{name: test, bootstrap: ["127.0.0.1:{broker}"], refresh: 50ms}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{bind}", advertise: 127.0.0.1, brokers: {{"1": "{port}"}}}}
quotas: {{store: {{path: quotas.yaml}}}}
admin: {{bind: "127.0.0.1:{admin}"}}
drain: {{delay: 0s, timeout: 1s}}
workers: {workers}
"""
GIVE: Final = """\
import os, sys
given = [int(each) for each in sys.argv[1].split(",")]
for place, each in enumerate(given, start=200):
    os.dup2(each, place)
for place in range(len(given)):
    os.dup2(200 + place, 3 + place)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Starts a program with sockets as systemd does: at 3 and up, and named in the environment."""


class Program:
    """The configuration of one program, and its ports."""

    def __init__(self, folder: Path, broker: FakeBroker, workers: int) -> None:
        self.bind, self.port, self.admin = free_ports(3)
        self.config = folder / "sluice.yaml"
        ports = {"bind": self.bind, "port": self.port, "admin": self.admin, "workers": workers}
        self.config.write_text(CONFIG.format(broker=broker.port, **ports))
        (folder / "quotas.yaml").write_text("quotas: []\n")
        self.command = (SLUICE, "run", "-c", str(self.config))
        self.log = folder / "log"

    @asynccontextmanager
    async def run(
        self, *command: str, sockets: Sequence[socket.socket] = (), environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[Process]:
        """Run a command; it must have ended at the end, with status 0 after a SIGTERM."""
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **(environment or {})},
                stdout=log,
                stderr=log,
                pass_fds=[each.fileno() for each in sockets],
            )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(TIMEOUT_S):
                assert await process.wait() == 0, self.log.read_text()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def answered(self) -> None:
        """Ask through the broker's port; a connection that waits for the program to start is answered too."""
        async with asyncio.timeout(TIMEOUT_S), client(self.port) as asking:
            await asking.ask(list_offsets(1))


@pytest_asyncio.fixture
async def program(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Program]:
    async with fake_broker() as broker:
        yield Program(tmp_path, broker, getattr(request, "param", 1))


async def test_systemd_hears_of_each_state(program: Program, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)

        async def until(said: str) -> list[str]:
            heard: list[str] = []
            while not heard or heard[-1] != said:
                heard.append((await asyncio.to_thread(manager.recv, 4096)).decode())
            return heard

        told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        async with program.run(*program.command, environment=told) as process:
            assert await until("READY=1") == ["READY=1"]
            await until("WATCHDOG=1")
            process.send_signal(signal.SIGHUP)
            began, *_ = [each for each in await until("READY=1") if each != "WATCHDOG=1"]
            state, _, at_us = began.partition("\nMONOTONIC_USEC=")
            assert state == "RELOADING=1"
            assert int(at_us) > 0
            await until("WATCHDOG=1")
        assert "STOPPING=1" in await until("STOPPING=1")


@pytest.mark.parametrize("program", [1, 2], indirect=True, ids=["one worker", "two workers"])
async def test_a_restart_refuses_no_connection(program: Program) -> None:
    """The sockets stay open in the manager, here this process: who connects while nothing runs is answered later."""
    async with AsyncExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", at))) for at in (program.bind, program.port)]
        given = ",".join(str(each.fileno()) for each in sockets)
        command = (sys.executable, "-c", GIVE, given, *program.command)
        for _ in range(2):
            waiting = asyncio.gather(*(program.answered() for _ in range(3)))
            async with program.run(*command, sockets=sockets):
                await waiting


async def test_systemd_starts_it_with_its_first_connection(program: Program) -> None:
    activate = shutil.which("systemd-socket-activate")
    if activate is None:
        pytest.skip("systemd-socket-activate is not installed")
    (unknown,) = free_ports(1)
    at = [f"--listen=127.0.0.1:{each}" for each in (program.bind, program.port, unknown)]
    async with program.run(activate, *at, *program.command):
        await until(lambda: "Listening on" in program.log.read_text())
        await program.answered()
    log = program.log.read_text()
    assert "a socket of systemd is not used: no listener has its address" in log
    assert f"127.0.0.1:{unknown}" in log
