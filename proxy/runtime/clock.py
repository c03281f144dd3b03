"""The only module that reads a clock; elsewhere time is an argument."""

import time
from typing import Final

NEVER_MS: Final = 2**62
"""A time that no clock reaches: no deadline."""


_monotonic_ns: Final = time.monotonic_ns


def now_ms() -> int:
    """Return monotonic time in whole milliseconds, the unit of quotas and delay queues."""
    return _monotonic_ns() // 1_000_000


def monotonic_s() -> float:
    """Return monotonic time in seconds, to measure short durations."""
    return time.monotonic()


def wall_s() -> float:
    """Return seconds since 1970, for logs and metrics; no decision depends on it."""
    return time.time()
