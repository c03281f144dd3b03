"""Rates, as a series of moments and running totals.

A greedy client under Kafka's default window sends ten seconds' worth at once, then a trickle, then again when its burst
has left the window, eleven to twelve seconds later (N samples of 1 s). A mean over some 30 s therefore says how many
bursts fell into them: Kafka's own quota shows +10 % or -20 % by where they begin. Over whole windows, counted from the
first bytes, each holds its burst, and the rate is the quota whatever the speed of the bursts. (A broker's own quota on
fetches, which takes back what it does not send, bursts every twelve seconds instead.)
"""

import bisect
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

WINDOW_S: Final = 11.0
MEASURED_WINDOWS: Final = 3
MEASURED_S: Final = WINDOW_S * (1 + MEASURED_WINDOWS)
SHORT_SAMPLES: Final = 3
SHORT_WINDOW_S: Final = 3.0
SHORT_WINDOW: Final = {"quotas": {"window": {"samples": SHORT_SAMPLES, "size": "1s"}}}
"""Settings of a window for tests whose rule does not depend on how long it is."""
LONGEST_PERIOD_S: Final = WINDOW_S + 1.0  # from a burst to the next: the window and a sample
SHORT_PERIOD_S: Final = SHORT_WINDOW_S + 1.0
SETTLING_STEPS: Final = 3  # the rate that begins of bursts are found with is the rate between them
LEAD_S: Final = 0.5  # the measurement begins and ends in the trickle that comes before a burst
END_SLACK_S: Final = 3.0  # a throttled client has nothing to report for so long
SAMPLE_S: Final = 0.05
TREND_STEP_S: Final = 0.1


class Series:
    """Running totals of bytes at moments of the monotonic clock."""

    def __init__(self, samples: Iterable[tuple[float, float]] = ()) -> None:
        self._at_s: list[float] = []
        self._bytes: list[float] = []
        for at_s, total in samples:
            self.append(at_s, total)

    def append(self, at_s: float, total_bytes: float) -> None:
        self._at_s.append(at_s)
        self._bytes.append(total_bytes)

    def is_empty(self) -> bool:
        """Whether no byte has come."""
        return not self._bytes or self._bytes[-1] == self._bytes[0]

    def start_s(self) -> float:
        """When the first bytes had come."""
        return next(at_s for at_s, total in zip(self._at_s, self._bytes, strict=True) if total > self._bytes[0])

    def end_s(self) -> float:
        """The moment of the last sample."""
        return self._at_s[-1]

    def bytes_at(self, at_s: float) -> float:
        position = bisect.bisect_right(self._at_s, at_s)
        return self._bytes[position - 1] if position else 0.0

    def rate(self, from_s: float, to_s: float) -> float:
        """Bytes per second between two moments."""
        return (self.bytes_at(to_s) - self.bytes_at(from_s)) / (to_s - from_s)

    def longest_pause_s(self, from_s: float, to_s: float) -> float:
        """The longest time between two moments in which no byte came."""
        longest_s, since_s, before = 0.0, from_s, self.bytes_at(from_s)
        for at_s, total in zip(self._at_s, self._bytes, strict=True):
            if from_s < at_s <= to_s and total > before:
                longest_s, since_s, before = max(longest_s, at_s - since_s), at_s, total
        return max(longest_s, to_s - since_s)

    def trend(self, from_s: float, to_s: float) -> float:
        """Bytes per second, as the slope of the straight line that fits best between two moments.

        Bursts of a window each make `rate` a fifth too large or too small over five of them, by where they begin, and
        this a twentieth at the most: for what cannot be counted from the first burst on.
        """
        count = round((to_s - from_s) / TREND_STEP_S)
        middle = (count - 1) / 2
        totals = [self.bytes_at(from_s + step * TREND_STEP_S) for step in range(count)]
        moments = sum((step - middle) * total for step, total in enumerate(totals))
        return moments / sum((step - middle) ** 2 for step in range(count)) / TREND_STEP_S

    def rate_by_bursts(self, from_s: float, to_s: float, period_s: float = LONGEST_PERIOD_S) -> float:
        """Bytes per second from the first begin of a burst between two moments to the last one.

        Bursts begin ``period_s`` apart at the most.

        Raises ValueError if the series ends before.
        """
        if self._at_s[-1] < to_s - END_SLACK_S:
            raise ValueError(f"the series ends {to_s - self._at_s[-1]:.1f} s before its last window does")
        rate = self.rate(from_s, to_s)
        for _ in range(SETTLING_STEPS):
            first_s = self._begin_of_burst_s(from_s, from_s + period_s, rate)
            rate = self.rate(first_s, self._begin_of_burst_s(to_s - period_s, to_s, rate))
        return rate

    def steady_rate(self, windows: int = MEASURED_WINDOWS, window_s: float = WINDOW_S) -> float:
        """`rate_by_bursts` within the windows (three: 33 s) that follow the first one."""
        return self.rate_by_bursts(*self.steady_span_s(windows, window_s), window_s + 1.0)

    def has_steady_rate(self, windows: int = MEASURED_WINDOWS, window_s: float = WINDOW_S) -> bool:
        """Whether these windows are over already; for a series that is still growing."""
        return not self.is_empty() and self._at_s[-1] >= self.steady_span_s(windows, window_s)[1]

    def steady_span_s(self, windows: int = MEASURED_WINDOWS, window_s: float = WINDOW_S) -> tuple[float, float]:
        """What `steady_rate` measures, as moments of the monotonic clock."""
        first = self.start_s() + window_s - LEAD_S
        return first, first + windows * window_s

    def _begin_of_burst_s(self, from_s: float, to_s: float, rate: float) -> float:
        """The moment between these two at which the total is furthest below a line of that rate."""
        first, last = (bisect.bisect_right(self._at_s, at_s) for at_s in (from_s, to_s))
        samples = zip(self._at_s[first:last], self._bytes[first:last], strict=True)
        return min(samples, key=lambda sample: sample[1] - rate * sample[0], default=(to_s, 0.0))[0]


class LogMeter:
    """Samples the size of a partition's log at its broker, or of several together, as a context manager."""

    def __init__(self, *folders: Path) -> None:
        self.series = Series()
        self._folders = folders
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.series.append(time.monotonic(), sum(map(log_bytes, self._folders)))


def log_bytes(folder: Path) -> int:
    """Bytes of record batches in a partition's folder.

    Segments are append-only files and not preallocated, so their sizes are the bytes appended so far.
    """
    return sum(segment.stat().st_size for segment in folder.glob("*.log"))
