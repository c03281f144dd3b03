"""One worker's process, as the supervisor sees it."""

import asyncio
from typing import Any

import pytest

from proxy.contract import Report
from proxy.worker import Worker
from proxy.workers import child
from proxy.workers.child import Child
from tests.harness.clock import Clock

pytestmark = pytest.mark.asyncio

REPORT = Report((), (), (), {}, 1.5, ({},), (), 0, fenced=False)


class Running:
    """A process, and its channel."""

    def __init__(self) -> None:
        self.running = self
        self.is_killed = False
        self.answers = True

    def kill(self) -> None:
        self.is_killed = True

    async def call(self, asked: object) -> Report:
        assert asked == (Worker.report, ())
        if not self.answers:
            await asyncio.Event().wait()
        return REPORT


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(child, "monotonic_s", clock)
    monkeypatch.setattr(child, "_ANSWER_S", 0.01)
    return clock


@pytest.fixture
def process() -> Running:
    return Running()


@pytest.fixture
def worker(process: Running, clock: Clock) -> Child:
    unused: Any = None
    up: Any = Child(0, unused, unused, unused, unused)
    up._channel, up._process, up.up, up._heard_s = process, process, True, clock()
    found: Child = up
    return found


async def test_a_worker_whose_loop_does_not_run_is_killed(worker: Child, process: Running, clock: Clock) -> None:
    process.answers = False
    await worker.look()
    for _ in range(3):
        assert not process.is_killed
        clock.now_s += 1.1
        assert not await worker.look()
    assert process.is_killed


async def test_busy_worker_with_late_answer_is_not_killed(worker: Child, process: Running, clock: Clock) -> None:
    """Its answer may wait behind large ones."""
    process.answers = False
    for _ in range(10):
        worker._hear()
        assert not await worker.look()
        clock.now_s += 1.1
    process.answers = True
    assert await worker.look()
    assert (process.is_killed, worker.report, worker.state.cpu_s) == (False, REPORT, 1.5)


async def test_worker_is_not_killed_after_sleep_of_supervisor(worker: Child, process: Running, clock: Clock) -> None:
    await worker.look()
    clock.now_s += 60.0
    assert await worker.look()
    clock.now_s += 1.1
    assert await worker.look()
    assert not process.is_killed
