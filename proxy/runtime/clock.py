"""The one place that reads a clock; everywhere else time is an argument."""

import time
from typing import Final

NEVER_MS: Final = 2**62
"""A moment that no clock reaches: what has no deadline."""


_monotonic_ns: Final = time.monotonic_ns


def now_ms() -> int:
    """Return the monotonic time in whole milliseconds: what quotas and delay queues count in."""
    return _monotonic_ns() // 1_000_000


def monotonic_s() -> float:
    """Return the monotonic time in seconds, for measuring short spans."""
    return time.monotonic()


def wall_s() -> float:
    """Return seconds since 1970: it stamps logs and metrics, and decides nothing."""
    return time.time()
