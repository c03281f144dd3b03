"""How long brokers take to answer, by API and broker: histograms that the sessions raise, and metrics show.

From when a request was forwarded until its answer began to come, in whole milliseconds: no clock is read for it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Upper bounds of the buckets; behind the last one is one more."""

MOST: Final = 1000
"""Pairs of an API and a broker that are told apart; of others the broker is OTHER."""
OTHER: Final = -2

_SHORT_MS: Final = 512
_BUCKET_OF: Final = bytes(sum(bound <= ms for bound in BOUNDS_MS) for ms in range(_SHORT_MS))
"""Of times below _SHORT_MS: what took 1 ms took less than 2, because both its ends are rounded down."""


class Histogram:
    """The times of one API at one broker."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0


class OfBroker:
    """The times of one broker, by API."""

    __slots__ = ("_all", "_by_api", "_node_id")

    def __init__(self, latencies: "Latencies", node_id: int) -> None:
        self._all = latencies
        self._node_id = node_id
        self._by_api: dict[int, Histogram] = {}

    def note(self, api_key: int, took_ms: int) -> None:
        """Count an answer that took so long."""
        histogram = self._by_api.get(api_key)
        if histogram is None:
            histogram = self._by_api[api_key] = self._all.make(api_key, self._node_id)
        histogram.sum_ms += took_ms
        if 0 <= took_ms < _SHORT_MS:
            histogram.counts[_BUCKET_OF[took_ms]] += 1
        else:
            histogram.counts[sum(bound <= took_ms for bound in BOUNDS_MS)] += 1


class Times(NamedTuple):
    """A copy of one histogram."""

    counts: tuple[int, ...]
    """Of each bucket alone; the last one has no upper bound."""
    sum_ms: int


class Latencies:
    """The times of all brokers of a worker."""

    __slots__ = ("_brokers", "_histograms")

    def __init__(self) -> None:
        self._brokers: dict[int, OfBroker] = {}
        self._histograms: dict[tuple[int, int], Histogram] = {}

    def of(self, node_id: int) -> OfBroker:
        """Return the times of a broker (-1: not known yet)."""
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = OfBroker(self, node_id)
        return broker

    def make(self, api_key: int, node_id: int) -> Histogram:
        """Return the histogram of an API at a broker, or what is left for all others."""
        if len(self._histograms) >= MOST:
            node_id = OTHER
        return self._histograms.setdefault((api_key, node_id), Histogram())

    def snapshot(self) -> Mapping[tuple[int, int], Times]:
        """Return what has been counted, by api key and node id."""
        return {key: Times(tuple(each.counts), each.sum_ms) for key, each in self._histograms.items()}
