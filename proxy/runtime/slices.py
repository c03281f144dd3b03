"""Long iterations in slices, so that other tasks get a turn in between."""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 100
"""Items processed at a time: less than a millisecond of counters or meters. A request that is answered meanwhile waits
for several slices: with 500 items, its 99th percentile was twice as long while 5,000 clients were listed."""


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return all items of an iterable, which is consumed in slices."""
    made = []
    for number, item in enumerate(items, 1):
        made.append(item)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return made
