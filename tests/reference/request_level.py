"""Every request of one client under one quota, charged to ``quotas.rate.Rate`` itself: what the fluid model is held to.

The client sends requests of r bytes as they fall due, the oldest first, by any number of connections: while the counter
owes a throttle time, nobody's next request goes, and when it is over the first one in line does. What went beyond a
window's worth is made good before, too, where Kafka forgets it with its sample. A request's bytes take r / P seconds of
the wire that the connections share.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quotas.rate import Rate, Window


@dataclass(frozen=True, slots=True)
class Shape:
    """How a client sends: requests of r bytes, over a wire of P bytes per second."""

    request_bytes: int
    peak_bytes_per_s: float

    @property
    def transfer_s(self) -> float:
        """How long one request is on the wire."""
        return self.request_bytes / self.peak_bytes_per_s


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: lists are by second, or by request in the order in which they were sent."""

    served_bytes: list[float]
    requests: list[int]
    muted_s: list[float]
    """How much of each second the counter was in debt."""
    throttles_s: list[float]
    waits_s: list[float]
    """How long after falling due each request was sent."""
    backlog_bytes: int
    """The most that ever was due and not sent."""
    left_bytes: int
    """What was still due at the end."""

    @property
    def ever_throttled(self) -> bool:
        return any(self.muted_s)

    @property
    def throttled_share(self) -> float:
        return sum(self.muted_s) / len(self.muted_s)


def run(
    demand_bytes: Iterable[float],
    shape: Shape,
    limit: float | None,
    window: Window = Window(),  # noqa: B008  frozen
) -> Run:
    """Let ``demand_bytes`` (by second, falling due evenly within it) pass as ``shape`` says, under ``limit``."""
    demand = list(demand_bytes)
    seconds = len(demand)
    counter = Counter(limit, window)
    due = due_s(demand, shape.request_bytes)
    wire_s = 0.0
    served = [0.0] * seconds
    requests = [0] * seconds
    throttles_s: list[float] = []
    waits_s: list[float] = []
    sent_s: list[float] = []
    held: list[tuple[float, float]] = []
    for at_s in due:
        joins_s = max(at_s, wire_s)
        now_s = max(joins_s, counter.over_s)
        if now_s > joins_s:
            held.append((joins_s, now_s))
        if now_s >= seconds:
            break
        throttle_s = counter.charge(shape.request_bytes, now_s)
        wire_s = now_s + shape.transfer_s
        if throttle_s:
            held.append((now_s, counter.over_s))
        served[int(now_s)] += shape.request_bytes
        requests[int(now_s)] += 1
        throttles_s.append(throttle_s)
        waits_s.append(now_s - at_s)
        sent_s.append(now_s)
    return Run(
        served,
        requests,
        covered_s(held, seconds),
        throttles_s,
        waits_s,
        _most_waiting(due, sent_s) * shape.request_bytes,
        (len(due) - len(sent_s)) * shape.request_bytes,
    )


class Counter:
    """What one counter has been charged, and when what it owes is over."""

    def __init__(self, limit: float | None, window: Window) -> None:
        self.over_s = 0.0
        self._rate = Rate(window, limit)
        self._debt = _Debt(limit, window)

    def charge(self, size: int, now_s: float) -> float:
        """Return the throttle time that Kafka asks for."""
        throttle_s = self._rate.charge(size, int(now_s * 1000)) / 1000
        self.over_s = max(self.over_s, now_s + throttle_s, now_s + self._debt.spend(size, now_s))
        return throttle_s


class _Debt:
    """What was sent and the limit has not made good yet."""

    def __init__(self, limit: float | None, window: Window) -> None:
        self._limit = limit or math.inf
        self._window_s = window.keep_ms / 1000
        self._bytes = self._at_s = 0.0

    def spend(self, size: int, now_s: float) -> float:
        """Return for how long a window's worth is exceeded."""
        if self._limit == math.inf:
            return -math.inf
        self._bytes = max(self._bytes - self._limit * (now_s - self._at_s), 0) + size
        self._at_s = now_s
        return self._bytes / self._limit - self._window_s


def due_s(demand: Sequence[float], request_bytes: int) -> list[float]:
    """Return when each request falls due: when its last byte would have, were the demand a stream."""
    due: list[float] = []
    rest = 0.0
    for second, arriving in enumerate(demand):
        if arriving <= 0:
            continue
        count = int((rest + arriving) // request_bytes)
        parts = (((number + 1) * request_bytes - rest) / arriving for number in range(count))
        due += [second + min(part, 1 - 1e-9) for part in parts]
        rest += arriving - count * request_bytes
    return due


def covered_s(spans: Iterable[tuple[float, float]], seconds: int) -> list[float]:
    """Return how much of each second is covered by spans, which are in the order of their beginnings."""
    covered = [0.0] * seconds
    until = 0.0
    for begin, end in spans:
        start = max(begin, until)
        stop = min(end, float(seconds))
        while start < stop:
            second = int(start)
            piece = min(stop, second + 1.0)
            covered[second] += piece - start
            start = piece
        until = max(until, end)
    return covered


def _most_waiting(due_s: list[float], sent_s: list[float]) -> int:
    """Return the most requests that were due and not sent at any moment; both lists are in order."""
    most = sent = 0
    for number, at_s in enumerate(due_s):
        while sent < len(sent_s) and sent_s[sent] <= at_s:
            sent += 1
        most = max(most, number + 1 - sent)
    return most
