"""The processor time of the proxy itself, measured of chunks drawn at random: each stands for those it was drawn from.

To ask the kernel for it takes longer than what most chunks need. So a few are measured, and charged as often as they
stand for: over a window everybody is charged what his chunks take, whatever they are, and no client can know which are
drawn. What may take long is always measured, and stands for itself alone.
"""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final

EVERY: Final = 64
"""One chunk of so many is measured, on average: asking twice takes as long as three small requests."""
DEAR_BYTES: Final = 4096
"""What is looked through as a whole, and is longer than that, is measured each time."""
_READINGS: Final = 5


class OwnTime:
    """The time that the thread of the loop has had of a processor, in nanoseconds, read by ``thread_ns``."""

    __slots__ = ("_left", "_random", "_reading_ns", "every", "thread_ns")

    def __init__(self, thread_ns: Callable[[], int], every: int = EVERY) -> None:
        self.thread_ns = thread_ns
        self.every = every
        self._random = Random()
        self._left = 1
        self._reading_ns = 0

    def calibrate(self) -> None:
        """Find out what reading the clock takes, which is no part of what is measured."""
        readings = [self.thread_ns() for _ in range(_READINGS)]
        self._reading_ns = min(after - before for before, after in pairwise(readings))

    def weigh(self, dear: bool) -> int:
        """Return for how many chunks the next one stands; 0: it is not measured."""
        if dear:
            return 1
        self._left -= 1
        if self._left > 0:
            return 0
        self._left = 1 + int(self._random.random() * (2 * self.every - 1))  # randrange() is ten calls
        return self.every

    def since_ns(self, began_ns: int) -> int:
        """Return how long the thread has run since ``thread_ns`` returned that."""
        return max(self.thread_ns() - began_ns - self._reading_ns, 0)
