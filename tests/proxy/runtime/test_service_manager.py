"""What systemd hears, at a socket as it has one, and which sockets are taken from it."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.runtime import service_manager
from proxy.runtime.service_manager import ServiceManager, inherited_sockets
from tests.proxy.front import end_background

TIMEOUT_S = 20.0


@pytest.fixture(params=["path", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """The manager's socket, and NOTIFY_SOCKET."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@sluice-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address.replace("@", "\0"))
        bound.settimeout(TIMEOUT_S)
        yield bound, address


@pytest.mark.asyncio
async def test_states_are_told_and_the_event_loop_beats(
    listening: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_manager, "monotonic_s", lambda: 12.5)
    manager_side, address = listening
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000", "WATCHDOG_PID": str(os.getpid())}
    manager = ServiceManager(environment)
    assert environment == {}, "child processes do not speak for this one"

    async def heard() -> str:
        return (await asyncio.to_thread(manager_side.recv, 4096)).decode()

    manager.started()
    assert [await heard() for _ in range(4)] == ["READY=1", *["WATCHDOG=1"] * 3]
    await end_background()
    manager.reloading()
    manager.reloaded()
    manager.stopping()
    told: list[str] = []
    while len(told) < 3:
        if (said := await heard()) != "WATCHDOG=1":  # a beat may have been on its way
            told.append(said)
    assert told == ["RELOADING=1\nMONOTONIC_USEC=12500000", "READY=1", "STOPPING=1"]


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}], ids=["none", "of another process"]
)
def test_watchdog_unset_or_of_other_process_gets_no_heartbeat(
    listening: tuple[socket.socket, str], watchdog: dict[str, str]
) -> None:
    ServiceManager({"NOTIFY_SOCKET": listening[1], **watchdog}).started()
    assert listening[0].recv(4096) == b"READY=1"


def test_without_systemd_nothing_is_told() -> None:
    with capture_logs() as logs:
        ServiceManager({}).stopping()
    assert logs == []


def test_a_manager_that_is_gone_is_logged(tmp_path: Path) -> None:
    with capture_logs() as logs:
        ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).stopping()
    assert [(each["what"], each["error"]) for each in logs] == [("STOPPING=1", "No such file or directory")]


def test_sockets_of_another_process_are_left_alone() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "HOME": "/"}
    assert inherited_sockets(environment) == []
    assert environment == {"HOME": "/"}
