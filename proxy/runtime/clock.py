"""The one place that reads a clock; everywhere else time is an argument."""

import time
from typing import Final

NEVER_MS: Final = 2**62
"""A moment that no clock reaches: what has no deadline."""


def now_ms() -> int:
    """Return the monotonic time in whole milliseconds: what quotas and delay queues count in."""
    return time.monotonic_ns() // 1_000_000


def monotonic_s() -> float:
    """Return the monotonic time in seconds, for measuring short spans."""
    return time.monotonic()


def wall_s() -> float:
    """Return seconds since 1970: it stamps logs and metrics, and decides nothing."""
    return time.time()


def now_ns() -> int:
    """Return the monotonic time in nanoseconds, for measuring requests."""
    return time.monotonic_ns()


def thread_ns() -> int:
    """Return how long this thread has run, in nanoseconds of a processor. It asks the kernel: not for each request."""
    return time.thread_time_ns()
