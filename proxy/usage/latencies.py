"""Latency histograms of brokers and of the proxy, by API and broker, for the metrics.

The broker's time is from forwarding a request to the first byte of its answer. The proxy's time is how long it held the
request before and the answer after that. Times are whole milliseconds of the loop's clock; a request that was not held
counts as 0 ms.
"""

from collections.abc import Mapping
from operator import add
from typing import Final, NamedTuple

from quotas.names import fold

BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Upper bounds of the buckets; behind the last one is one more."""

MOST: Final = 1000
"""The most pairs of an API and a broker; further ones are counted under FOLDED_BROKER."""
FOLDED_BROKER: Final = -2

_SHORT_MS: Final = 512
_BUCKET_OF: Final = bytes(sum(bound <= ms for bound in BOUNDS_MS) for ms in range(_SHORT_MS))
"""[ms below _SHORT_MS] the bucket. 1 ms means less than 2: both ends of the time are rounded down."""


class Times(NamedTuple):
    """A copy of one histogram."""

    counts: tuple[int, ...]
    """By bucket, not cumulative; the last one has no upper bound."""
    sum_ms: int

    def plus(self, other: "Times") -> "Times":
        return Times(tuple(map(add, self.counts, other.counts)), self.sum_ms + other.sum_ms)


class Histogram:
    """Counts of times by bucket, and their sum."""

    __slots__ = ("_counts", "_of_0_ms", "sum_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._of_0_ms = 0
        """Most times, counted apart: an item of a list takes four times as long."""
        self.sum_ms = 0

    def count(self, ms: int) -> None:
        """Count a time."""
        if ms == 0:
            self._of_0_ms += 1
            return
        self.sum_ms += ms
        if 0 <= ms < _SHORT_MS:
            self._counts[_BUCKET_OF[ms]] += 1
        else:
            self._counts[sum(bound <= ms for bound in BOUNDS_MS)] += 1

    def times(self) -> Times:
        first, *others = self._counts
        return Times((first + self._of_0_ms, *others), self.sum_ms)


class Parts:
    """The times of one API at one broker: the broker's, and the proxy's own."""

    __slots__ = ("broker", "proxy")

    def __init__(self) -> None:
        self.broker = Histogram()
        self.proxy = Histogram()


class OfBroker:
    """The times of one broker, by API."""

    __slots__ = ("_all", "_by_api", "_node_id")

    def __init__(self, latencies: "Latencies", node_id: int) -> None:
        self._all = latencies
        self._node_id = node_id
        self._by_api: dict[int, Parts] = {}

    def count(self, api_key: int, took_ms: int, held_ms: int = 0) -> None:
        """Count an answer that is passed on as it comes; its request was held for ``held_ms``."""
        parts = self._by_api.get(api_key) or self._make(api_key)
        parts.broker.count(took_ms)
        parts.proxy.count(held_ms)

    def came(self, api_key: int, took_ms: int) -> None:
        """Count the broker's time of an answer that the proxy may hold."""
        (self._by_api.get(api_key) or self._make(api_key)).broker.count(took_ms)

    def went(self, api_key: int, held_ms: int) -> None:
        """Count the proxy's time of an answer that is passed on now: how long it and its request were held."""
        (self._by_api.get(api_key) or self._make(api_key)).proxy.count(held_ms)

    def _make(self, api_key: int) -> Parts:
        parts = self._by_api[api_key] = self._all.make(api_key, self._node_id)
        return parts


class Latencies:
    """The times of all brokers of a worker."""

    __slots__ = ("_all", "_brokers")

    def __init__(self) -> None:
        self._brokers: dict[int, OfBroker] = {}
        self._all: dict[tuple[int, int], Parts] = {}

    def of(self, node_id: int) -> OfBroker:
        """Return the times of a broker (-1: not known yet)."""
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = OfBroker(self, node_id)
        return broker

    def make(self, api_key: int, node_id: int) -> Parts:
        """Return the times of an API at a broker, or at FOLDED_BROKER beyond MOST pairs."""
        key = fold((api_key, node_id), self._all, MOST, (api_key, FOLDED_BROKER))
        return self._all.setdefault(key, Parts())

    def snapshot(self) -> Mapping[tuple[int, int], Times]:
        """Return the brokers' times, by api key and node id."""
        return {key: parts.broker.times() for key, parts in self._all.items()}

    def proxy_snapshot(self) -> Mapping[tuple[int, int], Times]:
        """Return the proxy's times, by api key and node id."""
        return {key: parts.proxy.times() for key, parts in self._all.items()}
