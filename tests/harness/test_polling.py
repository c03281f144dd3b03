import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.harness.polling import until, wait_until


async def in_thread(look: Callable[[], object], timeout_s: float) -> object:
    return await asyncio.to_thread(wait_until, look, "a seventh", timeout_s, equals=7)


async def in_loop(look: Callable[[], object], timeout_s: float) -> object:
    return await until(look, "a seventh", timeout_s, equals=7)


Poller = Callable[[Callable[[], object], float], Awaitable[object]]
both = pytest.mark.parametrize("poll", [in_thread, in_loop])


@both
@pytest.mark.asyncio
async def test_poller_returns_first_value_that_is_as_wanted(poll: Poller) -> None:
    values = iter(range(20))
    assert await poll(lambda: next(values), 30.0) == 7
    assert next(values) == 8


@both
@pytest.mark.asyncio
async def test_poller_out_of_time_names_condition_and_last_value(poll: Poller) -> None:
    with pytest.raises(TimeoutError, match=r"not within 0\.01 s: a seventh; last seen: six"):
        await poll(lambda: "six", 0.01)


@both
@pytest.mark.asyncio
async def test_error_of_condition_ends_poller_unchanged(poll: Poller) -> None:
    def fail() -> object:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match=r"^of its own$"):
        await poll(fail, 30.0)


@pytest.mark.asyncio
async def test_coroutine_that_hangs_is_bounded_too() -> None:
    with pytest.raises(TimeoutError, match=r"not within 0\.01 s: an answer; last seen: None"):
        await until(asyncio.Event().wait, "an answer", 0.01)


@pytest.mark.asyncio
async def test_condition_without_name_is_shown_by_its_line() -> None:
    with pytest.raises(TimeoutError, match=r"until\(lambda: \[8, 9\], .*last seen: \[8, 9\]"):
        await until(lambda: [8, 9], timeout_s=0.01, is_so=lambda value: len(value) > 2)
