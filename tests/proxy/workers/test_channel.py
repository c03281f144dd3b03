"""Calls over a socket, in both directions."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.errors import Cause, ProtocolError
from proxy.runtime.faults import counts
from proxy.runtime.tasks import spawn
from proxy.workers.channel import Answer, Channel, GoneError
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S

pytestmark = pytest.mark.asyncio


async def refuse(asked: object) -> object:
    raise AssertionError(asked)


@asynccontextmanager
async def pair(answer: Answer, back: Answer = refuse) -> AsyncIterator[tuple[Channel, Channel]]:
    """Two channels that serve each other: the first calls ``answer``."""
    ours, theirs = socket.socketpair()
    channels = Channel(back), Channel(answer)
    serving = []
    for channel, end in zip(channels, (ours, theirs), strict=True):
        await channel.open(end)
        serving.append(spawn(channel.serve(), "serve"))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield channels
            for channel in channels:
                channel.close()
            await asyncio.wait(serving)
    finally:
        for each in serving:
            each.cancel()


async def test_both_ends_call_each_other_at_once_with_values_of_any_size() -> None:
    async def doubled(asked: Any) -> object:
        return asked * 2

    async with pair(doubled, doubled) as (one, other):
        large = b"x" * (3 * 2**20)
        calls = [one.call((large,)), other.call((large,)), one.call(()), other.call((None, 1))]
        answers = await asyncio.gather(*calls)
        assert answers == [(large,) * 2, (large,) * 2, (), (None, 1, None, 1)]


async def test_calls_begin_in_order_and_end_in_any() -> None:
    begun: list[str] = []
    may_end = asyncio.Event()

    async def slow_first(name: str) -> object:
        begun.append(name)
        if name == "first":
            await may_end.wait()
        may_end.set()
        return name

    async with pair(slow_first) as (one, _):
        assert [*await asyncio.gather(one.call("first"), one.call("second"))] == ["first", "second"]
        assert begun == ["first", "second"]


async def test_exception_of_remote_call_is_raised_at_caller() -> None:
    raised: list[Exception] = [
        ProtocolError(Cause.BAD_BODY, "not a body"),
        OSError(24, "too many open files"),
        ValueError("no"),
    ]

    async def fail(number: int) -> object:
        raise raised[number]

    async with pair(fail) as (one, _):
        for number, error in enumerate(raised):
            with pytest.raises(type(error)) as caught:
                await one.call(number)
            assert str(caught.value) == str(error)
            assert vars(caught.value) == vars(error)


async def test_an_answer_that_cannot_be_pickled_is_an_error() -> None:
    async def socket_of_its_own(name: str) -> object:
        return lambda: None

    async with pair(socket_of_its_own) as (one, _):
        with pytest.raises(RuntimeError, match=r"pickle"):
            await one.call("take")


async def test_an_answer_that_cannot_be_sent_is_noted_where_it_is() -> None:
    async def broken(*_: object) -> None:
        raise ArithmeticError

    async def answer(name: str) -> object:
        return name

    async with pair(answer) as (one, other):
        send, other._send = other._send, broken  # type: ignore[assignment,method-assign]
        call = spawn(one.call("first"), "call")
        await until(lambda: counts["answer a call"])
        other._send = send  # type: ignore[method-assign]
        assert await one.call("next") == "next"
        call.cancel()
    assert counts.pop("answer a call") == 1


async def test_calls_fail_when_the_other_end_has_gone() -> None:
    reached = asyncio.Event()

    async def never(name: str) -> object:
        reached.set()
        return await asyncio.Event().wait()

    async with pair(never) as (one, other):
        call = spawn(one.call("wait"), "call")
        await reached.wait()
        other.close()
        with pytest.raises(GoneError):
            await call
        with pytest.raises(GoneError):
            await one.call("again")


async def test_late_answer_after_timeout_is_dropped() -> None:
    may_answer = asyncio.Event()

    async def late(name: str) -> object:
        if name == "late":
            await may_answer.wait()
        return name

    async with pair(late) as (one, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await one.call("late")
        may_answer.set()
        assert await one.call("next") == "next"
