"""How long threads were at a request: a model, because a proxy does not see those of its brokers.

docs/request-percentage.md states the model and says how close it comes. Times are in nanoseconds, but for ``_us``.
"""

from collections.abc import Callable
from typing import Final

from proxy.usage.own_time import OwnTime

_FLOOR_PERIOD_MS: Final = 60_000
_CHEAP: Final = frozenset((12, 18))
"""Heartbeat and ApiVersions: no client can make much work of them, so that their time is that of the way."""
_MOST_GUESSED_FLOOR_NS: Final = 500_000
"""The most that is taken for the way while nothing cheap has come by: what all send may be as dear as they like."""

_BLUR_NS: Final = 2_000_000
"""What a request takes longer than usual, up to this, may be anything: threads that were woken late, a queue."""
_MOST_BLUR_NS: Final = 5_000_000
"""However busy the proxy is."""

_WAITING_KEYS: Final = frozenset(
    (8, 11, 13, 14, 19, 20, 21, 22, 24, 25, 26, 28, 29, 30, 31, 33, 34, 37, 38, 39, 40, 41, 42, 43, 44, 45, 47, 49, 51)
) | frozenset((57, 64, 68, 76, 79, 80, 81, 88, 91, 92))
"""APIs whose requests wait for other members, for replicas, for a coordinator's own thread, or for the controller."""

# What is usual for a broker's threads: a request by itself, and each of its bytes, those of the answer included.
_REQUEST_NS: Final = 25_000.0
_BYTE_NS: Final = 10.0
_REQUEST_NS_OF: Final = {0: 65_000.0, 1: 45_000.0, 78: 45_000.0}
_BYTE_NS_OF: Final = {0: 1.05, 1: 0.35, 3: 16.0, 78: 0.35}


def may_wait(api_key: int) -> bool:
    """Whether requests of an API wait by design, whatever they ask for. Produce and Fetch say it themselves."""
    return api_key in _WAITING_KEYS


def usual_ns(api_key: int, size: int) -> float:
    """Return what a broker's threads take for a request of so many bytes, those of its answer included."""
    return _REQUEST_NS_OF.get(api_key, _REQUEST_NS) + size * _BYTE_NS_OF.get(api_key, _BYTE_NS)


class ClientTimes:
    """What the requests of one client cost, by their API."""

    __slots__ = ("_costs_us",)

    def __init__(self) -> None:
        self._costs_us: dict[int, float] = {}

    def cost_us(self, api_key: int) -> float | None:
        """Return what the next request of an API may cost: soon more if they cost more, later less; None: not known."""
        return self._costs_us.get(api_key)

    def cost(self, api_key: int, charged_us: int) -> None:
        """Take note of what one has cost."""
        before = self._costs_us.get(api_key, 0.0)
        if charged_us > before:
            self._costs_us[api_key] = max(before * 0.75, charged_us)
        else:
            self._costs_us[api_key] = before + (charged_us - before) / 8


class BrokerTimes:
    """What is known of one broker: how long the way to it is."""

    __slots__ = ("_cheap_seen", "_ends_ms", "_floor_ns", "_least_ns")

    def __init__(self) -> None:
        self._floor_ns = 0
        self._least_ns = 0
        """Of this period; 0: none yet."""
        self._cheap_seen = False
        self._ends_ms = 0

    def floor_ns(self, api_key: int, elapsed_ns: int, now_ms: int) -> int:
        """Return what of the time that a request took was the way: the least seen. It may be this one."""
        if now_ms >= self._ends_ms:
            if self._cheap_seen:
                self._floor_ns, self._least_ns = self._least_ns, 0
                self._cheap_seen = False
            self._ends_ms = now_ms + _FLOOR_PERIOD_MS
        if api_key in _CHEAP:
            self._cheap_seen = True
        if not self._least_ns or elapsed_ns < self._least_ns:
            self._least_ns = elapsed_ns
        if self._floor_ns:
            return min(self._floor_ns, self._least_ns)
        return self._least_ns if self._cheap_seen else min(self._least_ns, _MOST_GUESSED_FLOOR_NS)


class RequestTimes:
    """The times of a worker. Its clocks, both in nanoseconds, are not read while no quota asks for it (``on``).

    ``clock_ns`` is monotonic, and shows when the chunk came that is being taken; ``thread_ns`` is what the loop's
    thread has had of a processor.
    """

    __slots__ = ("_brokers", "_round_ns", "clock_ns", "exempt_us", "on", "own")

    def __init__(self, clock_ns: Callable[[], int], thread_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self.own = OwnTime(thread_ns)
        self.on = False
        """Requests are timed: a request_percentage is configured for somebody."""
        self.exempt_us = 0
        """Of requests that no quota holds: those that nobody answers."""
        self._brokers: dict[int, BrokerTimes] = {}
        self._round_ns = 0.0

    def of(self, broker: int) -> BrokerTimes:
        """Return what is known of a broker, by its node id."""
        times = self._brokers.get(broker)
        if times is None:
            times = self._brokers[broker] = BrokerTimes()
        return times

    def round_took(self, round_ns: int) -> None:
        """Take note of how long a round of the loop has taken. To be called now and then."""
        self._round_ns += (round_ns - self._round_ns) / 8

    @property
    def blur_ns(self) -> float:
        """What of a request's time may have been spent in this loop, on its way and on that of its answer."""
        return min(_BLUR_NS + 2 * self._round_ns, _MOST_BLUR_NS)
