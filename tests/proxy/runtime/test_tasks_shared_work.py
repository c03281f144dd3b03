"""Work that several wait for: it goes on for those that are left, and ends with the last."""

import asyncio

import pytest

from proxy.runtime.tasks import SharedWork

pytestmark = pytest.mark.asyncio


class Work:
    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.outcome = "under way"
        self.shared = SharedWork(self.work())

    async def work(self) -> int:
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.outcome = "given up"
            raise
        self.outcome = "done"
        return 7


async def waiting(work: Work, number: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.ensure_future(work.shared.result()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_one_that_leaves_does_not_end_the_work_of_others() -> None:
    work = Work()
    leaving, staying = await waiting(work, 2)
    leaving.cancel()
    await asyncio.wait((leaving,))
    work.may_end.set()
    assert (await staying, work.outcome, work.shared.is_given_up) == (7, "done", False)
    assert await work.shared.result() == 7, "and whoever comes later has it, too"


async def test_work_is_given_up_when_the_last_has_left() -> None:
    work = Work()
    tasks = await waiting(work, 3)
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert (work.outcome, work.shared.is_given_up) == ("given up", True)
