"""Divides ``metrics.max_series`` among the families that grow with clients, brokers and addresses."""

from typing import Final, NamedTuple

from proxy.usage.latencies import BOUNDS_MS

_FIXED: Final = 2000
"""All other series: of the program, its listeners, APIs and errors, and those of ``other``."""
_PER_COUNTER: Final = 10
"""Limit, limit in shadow, usage, ratio, tokens, two for throttles, two for those in shadow, charges."""
_PER_CLIENT: Final = 8
_PER_LATENCY: Final = 2 * (len(BOUNDS_MS) + 3)
"""The broker's and the proxy's histogram: buckets, +Inf, sum and count."""
_PER_ADDRESS: Final = 2


class SeriesLimits(NamedTuple):
    """How many of each have series of their own."""

    counters: int
    """For quotas: by entity, kind and broker."""
    clients: int
    latencies: int
    """By API and broker."""
    addresses: int
    brokers: int


def divide(max_series: int) -> SeriesLimits:
    """Return limits with which a page has at most ``max_series`` series, in the worst case of each family."""
    series = max(max_series - _FIXED, 0)
    return SeriesLimits(
        counters=series * 54 // 100 // _PER_COUNTER,
        clients=series * 20 // 100 // _PER_CLIENT,
        latencies=series * 20 // 100 // _PER_LATENCY,
        addresses=series * 4 // 100 // _PER_ADDRESS,
        brokers=series * 2 // 100,
    )
