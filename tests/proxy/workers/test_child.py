"""One worker's process, as the supervisor sees it."""

import asyncio
from typing import Any

import pytest

from proxy.runtime.faults import counts
from proxy.workers import child
from proxy.workers.child import Child
from proxy.workers.process import Look

pytestmark = pytest.mark.asyncio

LOOK = Look([], 1.5, {})


class SlowChannel:
    """Answers after more than one of the times that a worker has for it, and before three are over."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def call(self, name: str) -> Look:
        self.calls.append(name)
        await asyncio.sleep(0.03)
        return LOOK


async def test_a_late_answer_of_a_busy_worker_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_ANSWER_S", 0.02)
    unused: Any = None
    worker = Child(0, unused, unused, unused, unused, unused)
    slow: Any = SlowChannel()
    worker.channel, worker.up = slow, True
    assert await worker.look() == LOOK
    assert (slow.calls, worker.cpu_s) == (["look"], 1.5)


async def test_a_fault_is_noted_and_the_worker_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    unused: Any = None
    worker = Child(0, unused, unused, unused, unused, unused)
    broken: Any = SlowChannel()
    monkeypatch.setattr(broken, "call", lambda _: 1 / 0)
    worker.channel, worker.up = broken, True
    with pytest.raises(ZeroDivisionError):
        await worker.look()
    assert counts.pop("ask a worker whether it is alive") == 1
