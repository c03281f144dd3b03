import asyncio

import pytest

from proxy.page.open_pages import RecentAnswers

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


async def test_cached_answers_are_renewed_after_their_own_lifetime() -> None:
    made = Made()
    answers = []
    for made.now_s in (0.0, 0.9, 1.0, 2.0):
        answers.append((await made.get(), await made.get("history", 2.0)))
    assert answers == [(1, 2), (1, 2), (3, 2), (4, 5)]


async def test_cancelled_request_leaves_shared_answer_to_others() -> None:
    made = Made()
    leaving = asyncio.create_task(made.get())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await made.get() == 1


async def test_answer_nobody_waits_for_is_given_up_and_made_anew() -> None:
    made = Made()
    leaving = [asyncio.create_task(made.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for each in leaving:
        each.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    assert await made.get() == 2


async def test_cached_error_is_raised_to_every_request() -> None:
    made = Made()
    made.error = ValueError("offset")
    for _ in range(2):
        with pytest.raises(ValueError, match="offset"):
            await made.get()
    assert made.times == 1


async def test_cache_of_answers_keeps_at_most_64_entries() -> None:
    made = Made()
    for number in range(1000):
        await made.get(str(number))
        assert len(made.recent._kept) <= 64
