"""Produce and Fetch of one client as a broker handles them (quota managers of KafkaApis)."""

from collections.abc import Callable
from dataclasses import dataclass

from quotas.rate import Rate, Window
from quotas.throttle import INT32_MAX, clamp_ms

BROKER_FETCH_MAX_BYTES = 57_671_680
"""Default of the broker's fetch.max.bytes, 55 MiB."""

Narrow = Callable[[int], int]
"""How a 64-bit throttle time becomes 32 bits: Kafka wraps, Sluice clamps."""


def wrap_ms(raw_ms: int) -> int:
    """Convert as Java's ``(int)`` does."""
    return (raw_ms + 2**31) % 2**32 - 2**31


NARROWINGS = (clamp_ms, wrap_ms)


def percentage(elapsed_ns: int) -> float:
    """Return thread time as percent-seconds of one thread, in Kafka's order of evaluation."""
    return elapsed_ns * (100.0 / 1e9)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a request met: by its bytes, by its handler time, and under whose name it is muted."""

    bandwidth_ms: int
    request_ms: int
    manager: str

    @property
    def throttle_ms(self) -> int:
        return max(self.bandwidth_ms, self.request_ms)

    @property
    def charged_to(self) -> str | None:
        if self.throttle_ms <= 0:
            return None
        return self.manager if self.bandwidth_ms > self.request_ms else "Request"  # ties: Request


class Client:
    """One client under up to three quotas, as in Kafka 2.0 and later."""

    def __init__(self, producer: float | None, consumer: float | None, request: float | None, narrow: Narrow) -> None:
        window = Window()
        self._producer = Rate(window, producer)
        self._consumer = Rate(window, consumer)
        self._request = Rate(window, request, cap_ms=window.size_ms)
        self._narrow = narrow

    def produce(self, size: int, io_ns: int, acks: int, now_ms: int) -> Verdict:
        bandwidth_ms = self._charge(self._producer, size, now_ms)
        # With acks=0 the handler time goes to the exempt sensor.
        request_ms = self._charge(self._request, percentage(io_ns), now_ms) if acks != 0 else 0
        return Verdict(bandwidth_ms, request_ms, "Produce")

    def fetch(self, size: int, io_ns: int, now_ms: int) -> Verdict:
        request_ms = self._charge(self._request, percentage(io_ns), now_ms)
        verdict = Verdict(self._charge(self._consumer, size, now_ms), request_ms, "Fetch")
        if verdict.throttle_ms > 0:
            self._consumer.record(-size, now_ms)  # an empty response goes out instead
        return verdict

    def network(self, elapsed_ns: int, now_ms: int) -> None:
        self._request.record(percentage(elapsed_ns), now_ms)

    def _charge(self, rate: Rate, value: float, now_ms: int) -> int:
        rate.record(value, now_ms)
        return self._narrow(rate.excess_ms(now_ms))


@dataclass(frozen=True, slots=True)
class FetchSizes:
    """What becomes of a fetch's sizes before the broker reads (KafkaApis.handleFetchRequest, KAFKA-9677)."""

    max_value_in_window: float | None
    max_bytes: int
    min_bytes: int


def fetch_sizes(window: Window, quota: float | None, max_bytes: int, min_bytes: int, broker_max: int) -> FetchSizes:
    allowance = None if quota is None else window.allowance(quota)
    cap = INT32_MAX if allowance is None else int(min(allowance, INT32_MAX))
    most = min(max_bytes, broker_max, cap)
    return FetchSizes(allowance, most, min(min_bytes, most))


def reads_resume_at(throttle_computed_at: int, throttle_ms: int, response_flushed_at: int) -> int:
    """Return when a muted channel is read again: both halves of its mute state have ended (KIP-219)."""
    return max(response_flushed_at, throttle_computed_at + throttle_ms)
