import asyncio

import pytest

from proxy.runtime import clock
from proxy.runtime.loop import watch_lag
from tests.harness.clock import Clock


async def observed(monkeypatch: pytest.MonkeyPatch, slept_s: list[float], every_s: float) -> list[float]:
    """Let ``watch_lag`` sleep for so many seconds each time, and return what it observed."""
    times = Clock()
    lags: list[float] = []
    done = asyncio.Event()
    real_sleep = asyncio.sleep

    async def sleep(delay_s: float) -> None:
        if delay_s != every_s:
            await real_sleep(delay_s)
            return
        if not slept_s:
            done.set()
            await asyncio.Event().wait()
        times.now_s += slept_s.pop(0)
        await real_sleep(0)

    monkeypatch.setattr(clock, "monotonic_s", times)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    task = watch_lag(lags.append, every_s)
    await done.wait()
    task.cancel()
    return lags


@pytest.mark.asyncio
async def test_lag_is_what_a_sleep_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await observed(monkeypatch, [0.5, 0.75, 1.5], 0.5) == [0.0, 0.25, 1.0]


@pytest.mark.asyncio
async def test_a_timer_that_fires_early_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await observed(monkeypatch, [0.499], 0.5) == [0.0]
