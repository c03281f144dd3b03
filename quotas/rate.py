"""The sampled rate behind byte, request and connection quotas, exactly as in Kafka 3.8 and later.

One object replaces Kafka's Sensor, Rate, WindowedSum and Quota. A sample begins at the first event after the previous
sample is full; samples are not aligned to a clock. Up to N + 1 of them are kept, in a ring; a sample expires as a whole
N windows after its *last* event: the rate does not decay (SampledStat, KAFKA-15859).
"""

import math
from dataclasses import dataclass
from typing import Final

from quotas.throttle import clamp_ms, throttle_ms

AT_ONCE: Final = -(2**62)
_NEVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Window:
    """The sampling of rates: quota.window.num samples of quota.window.size.seconds. Raises ValueError below 1."""

    samples: int = 11
    size_ms: int = 1000

    def __post_init__(self) -> None:
        if self.samples < 1 or self.size_ms < 1:
            raise ValueError(f"a window needs at least 1 sample of 1 ms, not {self.samples} of {self.size_ms} ms")

    @property
    def keep_ms(self) -> int:
        """How long a sample counts after its last event."""
        return self.samples * self.size_ms

    def allowance(self, limit: float) -> float:
        """Return the burst after idleness: N - 1 windows' worth, ten seconds' by default."""
        return limit * (self.samples - 1) * (self.size_ms / 1000)

    def of_burst(self, burst_ms: int, *, of_bucket: bool = False) -> "Window":
        """Return a window whose allowance is ``burst_ms`` worth, in samples of this length or shorter. A token bucket
        holds the worth of all its samples.
        """
        samples = -(-burst_ms // self.size_ms)
        return Window(samples if of_bucket else samples + 1, burst_ms // samples)


class Sample:
    """The usage recorded between ``start_ms`` and ``last_ms``."""

    __slots__ = ("last_ms", "start_ms", "sum")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.sum = 0.0


class Rate:
    """Usage per second, against an optional limit.

    Values are in the unit of the limit times seconds (bytes, percent-seconds, connections). Time must not run backwards
    for ``charge``; the other methods then behave like Kafka's.
    """

    __slots__ = (
        "_cap_ms",
        "_current",
        "_due_ms",
        "_headroom",
        "_index",
        "_left",
        "_limit",
        "_samples",
        "_window",
    )

    def __init__(self, window: Window, limit: float | None = None, cap_ms: int | None = None) -> None:
        self._window = window
        self._limit = limit
        self._cap_ms = cap_ms
        self._samples: list[Sample] = []
        self._index = -1
        self._current = Sample(0)
        self._left = 0.0
        """The usage recorded before the current sample, expired or not."""
        # The shortcut: before _due_ms no sample has to be rolled or purged, and while the current one is not above
        # _headroom the rate cannot exceed the limit, because it is never taken over less than N - 1 windows.
        self._due_ms = AT_ONCE
        self._headroom = 0.0

    @property
    def limit(self) -> float | None:
        """The limit in units per second; None: measured, but unlimited."""
        return self._limit

    @property
    def window(self) -> Window:
        return self._window

    @property
    def recorded_total(self) -> float:
        """All usage ever recorded."""
        return self._left + self._current.sum

    @property
    def last_ms(self) -> int | None:
        """The latest moment of any sample: ``Window.keep_ms`` after it this object behaves like a new one.

        Returns None without samples. (Records without a check may make W differ by less than one sample.)
        """
        return max([sample.last_ms for sample in self._samples], default=None)

    def set_limit(self, limit: float | None) -> None:
        """Use another limit, also for usage already recorded."""
        self._limit = limit
        self._settle()

    def set_window(self, window: Window) -> None:
        """Use another window; the newest samples are kept."""
        if window == self._window:
            return
        self._window = window
        begin = self._index + 1  # in a full ring the oldest follows the newest
        self._samples = (self._samples[begin:] + self._samples[:begin])[-(window.samples + 1) :]
        self._index = len(self._samples) - 1
        self._due_ms = AT_ONCE
        self._settle()

    def charge(self, value: float, now_ms: int) -> int:
        """Record ``value`` and return the throttle time in ms, 0 for none (Sensor.record with its check)."""
        if now_ms < self._due_ms:
            sample = self._current
            used = sample.sum + value
            sample.sum = used
            sample.last_ms = now_ms
            if used <= self._headroom:
                return 0
        else:
            self.record(value, now_ms)
        return self.check(now_ms)

    def record(self, value: float, now_ms: int) -> None:
        """Record ``value`` without checking the limit."""
        if now_ms >= self._due_ms:
            self._roll(now_ms)
        sample = self._current
        sample.sum += value
        sample.last_ms = now_ms

    def check(self, now_ms: int) -> int:
        """Return the throttle time in ms for the usage recorded so far, 0 for none."""
        return clamp_ms(self.excess_ms(now_ms))

    def excess_ms(self, now_ms: int) -> int:
        """Return the throttle time as Kafka has it before int32: 0 within the limit (the bound is inclusive)."""
        self.purge(now_ms)
        if self._limit is None:
            return 0
        observed, window_ms = self.observe(now_ms)
        return 0 if observed <= self._limit else throttle_ms(observed, self._limit, window_ms, self._cap_ms)

    def scale(self, factor: float) -> None:
        """Multiply the usage in the samples; ``recorded_total`` stays."""
        for sample in self._samples:
            more = sample.sum * (factor - 1)
            sample.sum += more
            if sample is self._current:
                self._left -= more
        self._settle()

    def rate(self, now_ms: int) -> float:
        """Return the usage per second. Unlike a metrics read in Kafka, this moves no sample."""
        return self.observe(now_ms)[0]

    def observe(self, now_ms: int) -> tuple[float, int]:
        """Return the usage per second and the time in ms that it is taken over (Rate.measure, Rate.windowSize)."""
        window = self._window
        size_ms = window.size_ms
        keep_ms = window.keep_ms
        total = 0.0
        start_ms = now_ms if not self._samples else _NEVER
        for sample in self._samples:  # in the order of the ring: additions of doubles do not commute
            if now_ms - sample.last_ms < keep_ms:
                total += sample.sum
                start_ms = min(start_ms, sample.start_ms)
            else:
                start_ms = min(start_ms, now_ms)
        elapsed_ms = now_ms - start_ms
        full = elapsed_ms // size_ms if elapsed_ms >= 0 else -(-elapsed_ms // size_ms)  # Java truncates towards zero
        if full < window.samples - 1:
            elapsed_ms += (window.samples - 1 - full) * size_ms  # windows before the first sample count, as empty
        window_ms = max(elapsed_ms, 1)
        return total / (window_ms / 1000.0), window_ms

    def purge(self, now_ms: int) -> None:
        """Reset expired samples to begin now, as every measurement in Kafka does (SampledStat)."""
        if not self._samples:
            self._begin(now_ms)
        keep_ms = self._window.keep_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= keep_ms:
                if sample is self._current:
                    self._left += sample.sum
                sample.sum = 0.0
                sample.start_ms = sample.last_ms = now_ms

    def reset(self) -> None:
        """Drop the samples, which must have expired; ``recorded_total`` stays."""
        self._left += self._current.sum
        self._samples = []
        self._current = Sample(0)
        self._due_ms = AT_ONCE

    def _roll(self, now_ms: int) -> None:
        if not self._samples:
            self._begin(now_ms)
        elif now_ms - self._current.start_ms >= self._window.size_ms:
            self._left += self._current.sum
            # One slot more than N; a slot is overwritten whatever it holds (SampledStat.advance).
            self._index = (self._index + 1) % (self._window.samples + 1)
            self._begin(now_ms)
        self._settle()

    def _begin(self, now_ms: int) -> None:
        self._current = Sample(now_ms)
        if not self._samples:
            self._index = 0
        if self._index == len(self._samples):
            self._samples.append(self._current)
        else:
            self._samples[self._index] = self._current

    def _settle(self) -> None:
        """Recompute the shortcut of ``charge`` after any of its inputs changed."""
        if not self._samples:
            return
        current = self._current
        rest = 0.0
        due_ms = current.start_ms + self._window.size_ms
        keep_ms = self._window.keep_ms
        for sample in self._samples:
            if sample is not current:
                rest += sample.sum
                due_ms = min(due_ms, sample.last_ms + keep_ms)
        self._due_ms = due_ms
        self._headroom = math.inf if self._limit is None else self._window.allowance(self._limit) - rest
