"""A worker's process, whose supervisor may be silent."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.loader import load_settings
from config.owners import Owners
from proxy.contract import Changed, Report, at_start, difference
from proxy.edge.listening import bind
from proxy.worker import Worker
from proxy.workers import process as module
from proxy.workers.process import WorkerProcess, silence_s
from tests.harness.clock import Clock
from tests.harness.ports import free_ports
from tests.proxy.front import end_background
from tests.proxy.test_supervisor import CONFIG

pytestmark = pytest.mark.asyncio

GROUP = "owners: {instance: here, group: owners, secret_file: secret, session: 6s, heartbeat: 1s}\n"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic_s", clock)
    monkeypatch.setattr(module, "every", lambda *_: None)
    return clock


@pytest.fixture
def process() -> Iterator[WorkerProcess]:
    ends = [*socket.socketpair(), *socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
    process = WorkerProcess(ends[0], ends[2])
    process._ports.bind = bind  # type: ignore[method-assign]
    yield process
    for end in ends:
        end.close()


async def report(process: WorkerProcess) -> Report:
    said = await process._answer((Worker.report, ()))
    assert isinstance(said, Report)
    return said


async def test_worker_owns_nothing_while_its_supervisor_is_silent(
    tmp_path: Path, clock: Clock, process: WorkerProcess
) -> None:
    at, port, admin = free_ports(3)
    text = CONFIG.format(broker=1, bind=at, admin=admin, mode="enforce", more="", port=port) + "workers: 2\n" + GROUP
    (tmp_path / "sluice.yaml").write_text(text)
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    (tmp_path / "secret").write_text("a secret of all instances")
    in_force = at_start(load_settings(tmp_path / "sluice.yaml"), answers_clients=False)
    serving = replace(in_force, serving=True)
    await process._answer(Changed(1, difference(None, serving)))
    clock.now_s += 3.9
    process._hear_supervisor()
    assert not (await report(process)).fenced
    clock.now_s += 3.9
    process._hear_supervisor()
    assert not (await report(process)).fenced
    clock.now_s += 4.1
    process._hear_supervisor()
    assert (await report(process)).fenced
    process._hear_supervisor()
    await process._answer(Changed(1, {"mode": "shadow"}))
    assert (await report(process)).fenced  # as long as nothing else is said
    await process._answer(Changed(1, {"fenced": False}))
    assert not (await report(process)).fenced
    await process._answer((Worker.stop, ()))
    await end_background()


def owners(session_s: float, heartbeat_s: float) -> Owners:
    return Owners.model_construct(session_s=session_s, heartbeat_s=heartbeat_s)


async def test_silence_allowed_ends_before_the_session_of_the_instance_may() -> None:
    """The last heartbeat may have been sent an interval before the last word."""
    assert silence_s(owners(6.0, 1.0)) == 4.0
    assert silence_s(owners(30.0, 3.0)) == 26.0
    assert silence_s(owners(2.0, 0.5)) == 1.0
