"""Long iterations in slices, so that other tasks get a turn in between."""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 500
"""Items processed at a time: one or two milliseconds of counters or meters."""


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return all items of an iterable, which is consumed in slices."""
    made = []
    for number, item in enumerate(items, 1):
        made.append(item)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return made
