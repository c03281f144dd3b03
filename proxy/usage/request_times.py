"""How long threads were at a request: a model, because a proxy does not see those of its brokers.

docs/request-percentage.md states the model and says how close it comes. Times are in nanoseconds, but for ``_us``.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from proxy.usage.by_kind import Use
from proxy.usage.own_time import OwnTime
from quotas.bound import Bound

_FLOOR_PERIOD_MS: Final = 60_000
_HEARTBEAT: Final = 12
_API_VERSIONS: Final = 18
"""No client can make much work of either, so that their time is that of the way."""
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

# What is usual for a broker's threads: a request by itself, each of its bytes, and each byte of its answer. Measured
# with Kafka 4.3.1; request_loads.py and test_request_percentage_accuracy.py show how.
_PRODUCE: Final = 0
_REQUEST_NS: Final = 30_000.0
_ASKED_NS: Final = 10.0
_ANSWERED_NS: Final = 10.0
_REQUEST_NS_OF: Final = {0: 85_000.0, 1: 25_000.0, 8: 50_000.0}
_ASKED_NS_OF: Final = {0: 1.3, 1: 85.0, 2: 50.0}
"""A Produce is its records. A Fetch and a ListOffsets list partitions, and each is work."""
_ANSWERED_NS_OF: Final = {0: 1.3, 1: 0.3, 3: 30.0, 78: 0.3}

_RECORD_NS: Final = 400.0
"""Each record that is produced is looked at, however small it was compressed."""
_LOOKED_AT: Final = 61
"""One Produce of so many, about, has its records looked at."""

_BLOCK: Final = 32
"""The least but one of so many requests says what they take when nothing is in their way: late threads and queues only
ever add to it."""
_LATE_NS: Final = 100_000
"""What threads may be late for each of them, beyond the way: so much is not taken for work."""
HANDED_ON_NS: Final = 60_000
"""What the threads of a broker need to hand a request on to each other: of the way, what is left behind another one."""


def may_wait(api_key: int) -> bool:
    """Whether requests of an API wait by design, whatever they ask for. Produce and Fetch say it themselves."""
    return api_key in _WAITING_KEYS


def table_ns(api_key: int, request_bytes: int, answer_bytes: int) -> float:
    """Return what the threads of the broker that was measured take for a request of that size, and its answer."""
    return (
        _REQUEST_NS_OF.get(api_key, _REQUEST_NS)
        + request_bytes * _ASKED_NS_OF.get(api_key, _ASKED_NS)
        + answer_bytes * _ANSWERED_NS_OF.get(api_key, _ANSWERED_NS)
    )


class ApiTimes:
    """What the requests of one client and of one API take."""

    __slots__ = (
        "_answered_ns",
        "_asked_ns",
        "_count",
        "_least_ns",
        "_next_ns",
        "_request_ns",
        "api_key",
        "cost_us",
        "may_wait",
        "work_ns",
    )

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        self.may_wait = may_wait(api_key)
        """They wait by design, whatever they ask for."""
        self._request_ns = table_ns(api_key, 0, 0)
        self._asked_ns = _ASKED_NS_OF.get(api_key, _ASKED_NS)
        self._answered_ns = _ANSWERED_NS_OF.get(api_key, _ANSWERED_NS)
        self.cost_us = -1.0
        """What the next one may cost; below 0: not known."""
        self.work_ns = 0.0
        """What those that could not wait have taken at the least, as far as that is known."""
        self._least_ns = 0.0
        self._next_ns = 0.0
        """The two least of this block, of which there were ``_count``."""
        self._count = 0

    def usual_ns(self, request_bytes: int, answer_bytes: int) -> float:
        """Return what is usual for a request of that size, and its answer: the table, and the records produced."""
        return self._request_ns + request_bytes * self._asked_ns + answer_bytes * self._answered_ns

    def packed(self, records_per_byte: float) -> None:
        """Take note of how densely records are packed in them."""
        self._asked_ns = _ASKED_NS_OF.get(self.api_key, _ASKED_NS) + records_per_byte * _RECORD_NS

    def cost(self, charged_us: int) -> None:
        """Take note of what one has cost."""
        before = max(self.cost_us, 0.0)
        if charged_us > before:
            self.cost_us = max(before * 0.75, charged_us)
        else:
            self.cost_us = before + (charged_us - before) / 8

    def certain_ns(self, work_ns: float) -> float:
        """Return what was work for certain of a request that seems to be so much; 0 or less: nothing."""
        return min(self.work_ns, work_ns) - _LATE_NS

    def note(self, work_ns: float) -> None:
        """Take note of what a request seems to be that could not wait: how long it took, without the way."""
        if not self._count or work_ns < self._least_ns:
            self._next_ns = self._least_ns if self._count else inf
            self._least_ns = work_ns
        elif work_ns < self._next_ns:
            self._next_ns = work_ns
        self._count += 1
        if self._count == _BLOCK:
            self._count = 0
            found_ns = max(self._next_ns, 0.0)
            self.work_ns = self.work_ns + (found_ns - self.work_ns) / 4 if self.work_ns else found_ns


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
        if api_key in (_HEARTBEAT, _API_VERSIONS):
            self._cheap_seen = True
        if not self._least_ns or elapsed_ns < self._least_ns:
            self._least_ns = elapsed_ns
        if self._floor_ns:
            return min(self._floor_ns, self._least_ns)
        return self._least_ns if self._cheap_seen else min(self._least_ns, _MOST_GUESSED_FLOOR_NS)


class ClientTimes:
    """What the requests of one client take, by their API; and what they are charged to, right for ``generation``."""

    __slots__ = ("_apis", "_density", "bound", "bounds", "broker", "generation", "use")

    def __init__(self) -> None:
        self._apis: dict[int, ApiTimes] = {}
        self._density = 0.0
        """Records for each byte of its Produce requests."""
        self.generation = -1
        """Of the engine's, that in which the others were found."""
        self.bounds: tuple[Bound, ...] = ()
        self.bound: Bound
        """The first of them."""
        self.use: Use
        """Where its record counts what was charged."""
        self.broker: BrokerTimes

    def usual_ns(self, api_key: int, request_bytes: int, answer_bytes: int) -> float:
        """Return what is usual for a request of that size, and its answer: the table, and the records produced."""
        return self.of(api_key).usual_ns(request_bytes, answer_bytes)

    def produced(self, records_per_byte: float) -> None:
        """Take note of how densely records are packed in a Produce."""
        if records_per_byte:
            self._density += (records_per_byte - self._density) / (4 if self._density else 1)
            self.of(_PRODUCE).packed(self._density)

    def of(self, api_key: int) -> ApiTimes:
        """Return what is known of an API."""
        times = self._apis.get(api_key)
        if times is None:
            times = self._apis[api_key] = ApiTimes(api_key)
        return times

    def cost_us(self, api_key: int) -> float | None:
        """Return what the next request of an API may cost: soon more if they cost more, later less; None: not known."""
        cost_us = self.of(api_key).cost_us
        return None if cost_us < 0 else cost_us

    def cost(self, api_key: int, charged_us: int) -> None:
        """Take note of what one has cost."""
        self.of(api_key).cost(charged_us)


class RequestTimes:
    """The times of a worker. Its clocks, both in nanoseconds, are not read while no quota asks for it (``on``).

    ``clock_ns`` is monotonic, and shows when the chunk came that is being taken; ``thread_ns`` is what the thread of
    the loop has had of a processor.
    """

    __slots__ = ("_brokers", "_chunk_ns", "_round_ns", "chunks", "clock_ns", "exempt_us", "on", "own")

    def __init__(self, clock_ns: Callable[[], int], thread_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self.own = OwnTime(thread_ns)
        self.on = False
        """Requests are timed: a request_percentage is configured for somebody."""
        self.exempt_us = 0
        """Of requests that no quota holds: those that nobody answers."""
        self._brokers: dict[int, BrokerTimes] = {}
        self._round_ns = 0.0
        self.chunks = 0
        """Requests and answers that the proxy has seen to: what it did meanwhile is no work of a broker's."""
        self._chunk_ns = 0.0

    def of(self, broker: int) -> BrokerTimes:
        """Return what is known of a broker, by its node id."""
        times = self._brokers.get(broker)
        if times is None:
            times = self._brokers[broker] = BrokerTimes()
        return times

    def round_took(self, round_ns: int) -> None:
        """Take note of how long a round of the loop has taken. To be called now and then."""
        self._round_ns += (round_ns - self._round_ns) / 8

    def chunk_took(self, thread_ns: int) -> None:
        """Take note of how long the proxy itself was at a chunk, of those that are no longer than most."""
        self._chunk_ns += (thread_ns - self._chunk_ns) / 16 if self._chunk_ns else thread_ns

    @property
    def looks(self) -> bool:
        """Whether the next Produce is one whose records are looked at."""
        return self.chunks % _LOOKED_AT == 0

    def meanwhile_ns(self, chunks: int) -> float:
        """Return how long the proxy itself was at what it saw to since ``chunks`` was that."""
        return (self.chunks - chunks) * self._chunk_ns

    @property
    def blur_ns(self) -> float:
        """What of a request's time may have been spent in this loop, on its way and on that of its answer."""
        return min(_BLUR_NS + 2 * self._round_ns, _MOST_BLUR_NS)
