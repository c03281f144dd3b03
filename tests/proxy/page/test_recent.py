import asyncio

import pytest

from proxy.page.recent import RecentAnswers

pytestmark = pytest.mark.asyncio


class Made:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.times = 0
        self.error: Exception | None = None
        self.recent = RecentAnswers(lambda: self.now_s)

    async def make(self) -> int:
        self.times += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return self.times

    async def get(self, key: str = "page", keep_s: float = 1.0) -> int:
        number: int = await self.recent.get(key, keep_s, self.make)
        return number


async def test_pages_that_are_open_together_are_made_once() -> None:
    made = Made()
    assert await asyncio.gather(*(made.get() for _ in range(8))) == [1] * 8
    assert await made.get("another") == 2


async def test_each_is_kept_for_its_time() -> None:
    made = Made()
    answers = []
    for made.now_s in (0.0, 0.9, 1.0, 2.0):
        answers.append((await made.get(), await made.get("history", 2.0)))
    assert answers == [(1, 2), (1, 2), (3, 2), (4, 5)]


async def test_who_leaves_does_not_take_the_answer_from_others() -> None:
    made = Made()
    leaving = asyncio.create_task(made.get())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await made.get() == 1


async def test_an_error_is_everybodys() -> None:
    made = Made()
    made.error = ValueError("offset")
    for _ in range(2):
        with pytest.raises(ValueError, match="offset"):
            await made.get()
    assert made.times == 1


async def test_few_are_kept() -> None:
    made = Made()
    for number in range(1000):
        await made.get(str(number))
        assert len(made.recent._kept) <= 64
