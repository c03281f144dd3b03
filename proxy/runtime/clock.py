"""The one place that reads a clock; everywhere else time is an argument."""

import time
from typing import Final

NEVER_MS: Final = 2**62
"""A moment that no clock reaches: what has no deadline."""


_monotonic_ns: Final = time.monotonic_ns


class _Reading:
    """What the clock showed when it was read last."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0


_LAST: Final = _Reading()


def now_ms() -> int:
    """Return the monotonic time in whole milliseconds: what quotas and delay queues count in."""
    ns = _monotonic_ns()
    _LAST.ns = ns
    return ns // 1_000_000


def last_ns() -> int:
    """Return the nanoseconds of what ``now_ms`` returned last. Each chunk is taken at a time that was read for it, so
    requests are measured by that reading: no further one is made for them.
    """
    return _LAST.ns


def monotonic_s() -> float:
    """Return the monotonic time in seconds, for measuring short spans."""
    return time.monotonic()


def wall_s() -> float:
    """Return seconds since 1970: it stamps logs and metrics, and decides nothing."""
    return time.time()


def now_ns() -> int:
    """Return the monotonic time in nanoseconds, for measuring short spans."""
    return _monotonic_ns()


def thread_ns() -> int:
    """Return how long this thread has run, in nanoseconds of a processor. It asks the kernel: not for each request."""
    return time.thread_time_ns()
