"""Waiting for a condition: `wait_until` blocks a thread, `until` a coroutine.

Both look until the value is true, equals ``equals``, or ``is_so`` of it is true, and return it. TimeoutError names what
was waited for (by default the line that has the condition) and the last value. Tests that replace `time.sleep` or
`asyncio.sleep` do not change them.
"""

import linecache
from asyncio import sleep as async_sleep
from asyncio import timeout
from collections.abc import Callable
from inspect import isawaitable
from time import monotonic, sleep
from typing import Any, Final, TypeVar

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05  # each look may ask a program
COROUTINE_POLL_S: Final = 0.005
SHOWN_CHARACTERS: Final = 2000
_TRUE: Final = object()

T = TypeVar("T")


def wait_until(
    look: Callable[[], T],
    what: str = "",
    timeout_s: float = TIMEOUT_S,
    *,
    equals: object = _TRUE,
    is_so: Callable[[Any], object] = bool,
) -> T:
    deadline_s = monotonic() + timeout_s
    while True:
        value = look()
        if is_so(value) if equals is _TRUE else value == equals:
            return value
        if monotonic() > deadline_s:
            raise TimeoutError(_said(look, what, timeout_s, value))
        sleep(POLL_S)


async def until(
    look: Callable[[], Any],
    what: str = "",
    timeout_s: float = TIMEOUT_S,
    *,
    equals: object = _TRUE,
    is_so: Callable[[Any], object] = bool,
) -> Any:
    """``look`` may be a coroutine function."""
    value = None
    try:
        async with timeout(timeout_s) as bound:
            while True:
                value = await seen if isawaitable(seen := look()) else seen
                if is_so(value) if equals is _TRUE else value == equals:
                    return value
                await async_sleep(COROUTINE_POLL_S)
    except TimeoutError:
        if not bound.expired():
            raise
        raise TimeoutError(_said(look, what, timeout_s, value)) from None


def _said(look: Callable[[], object], what: str, timeout_s: float, value: object) -> str:
    code = getattr(look, "__code__", None)
    what = what or (linecache.getline(code.co_filename, code.co_firstlineno).strip() if code else str(look))
    return f"not within {timeout_s:g} s: {what}; last seen: {str(value)[:SHOWN_CHARACTERS]}"
