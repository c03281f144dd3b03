"""Jobs and timers that fail, and the loop's own last resort."""

import asyncio
from typing import Any

import pytest

from proxy.runtime import faults
from proxy.runtime.tasks import AFTER_FAULT_S, every, later, on_loop_error, spawn, within

pytestmark = pytest.mark.asyncio

WHERE = "a test of tasks"


class Sleeps:
    """Stands in for asyncio.sleep: takes no time, and keeps the durations; the one numbered ``most`` never ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.slept_s: list[float] = []
        self.over = asyncio.Event()
        self._most = most
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self)

    async def __call__(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        if len(self.slept_s) == self._most:
            self.over.set()
            await asyncio.Event().wait()
        await self._sleep(0)


async def test_a_job_runs_at_once_and_then_periodically_whether_it_waits_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeps, runs = Sleeps(monkeypatch, 6), []

    async def waiting() -> None:
        runs.append("waiting")

    tasks = [every(0.5, job, WHERE) for job in (waiting, lambda: runs.append("plain"))]
    await sleeps.over.wait()
    for task in tasks:
        task.cancel()
    assert runs[:6] == ["waiting", "plain"] * 3
    assert sleeps.slept_s[:6] == [0.5] * 6


async def test_a_job_that_fails_is_run_again_but_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = Sleeps(monkeypatch, 4)
    runs: list[int] = []

    def job() -> None:
        runs.append(len(runs))
        if len(runs) in (1, 3):
            raise UnicodeError("of whatever kind")

    task = every(lambda: 0.01, job, WHERE)
    await sleeps.over.wait()
    assert sleeps.slept_s == [AFTER_FAULT_S, 0.01, AFTER_FAULT_S, 0.01]
    assert (len(runs), faults.counts[WHERE], task.done()) == (4, 2, False)
    task.cancel()


async def test_tasks_and_timers_that_fail_are_counted_by_their_name() -> None:
    async def failing() -> None:
        raise LookupError

    over = asyncio.Event()
    await asyncio.wait([spawn(failing(), WHERE)])
    later(0, WHERE, divmod, 1, 0, otherwise=over.set)
    await over.wait()
    assert faults.counts[WHERE] == 2


@pytest.mark.parametrize(
    ("context", "counted"),
    [
        ({"message": "callback failed", "exception": ValueError()}, 1),
        ({"message": "no more than that"}, 1),
        ({"message": "Fatal read error", "exception": TimeoutError(110, "Connection timed out")}, 0),
    ],
)
async def test_loop_error_is_counted_unless_connection_ended(context: dict[str, Any], counted: int) -> None:
    before = faults.counts["event loop"]
    on_loop_error(asyncio.get_running_loop(), context)
    assert faults.counts["event loop"] == before + counted


async def test_work_within_a_limit_returns_its_result_or_is_cancelled() -> None:
    cancelled: list[str] = []

    async def work(name: str, wait_for: asyncio.Event) -> str:
        try:
            await wait_for.wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise
        return name

    never, done = asyncio.Event(), asyncio.Event()
    done.set()
    assert await within(3600, work("in time", done)) == "in time"
    with pytest.raises(TimeoutError):
        await within(0, work("too late", never))
    waiting = spawn(within(3600, work("left", never)), WHERE)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cancelled == ["too late", "left"]
    await asyncio.sleep(0)  # what has timed out is not cancelled afterwards
