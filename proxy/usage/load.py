"""The load of brokers: the CPU time that their clients take here, smoothed over minutes."""

from collections.abc import Mapping
from math import exp
from typing import Final

from proxy.usage.meters import Totals

_REQUEST_MS: Final = 0.019
_BYTE_MS: Final = 0.39e-6
"""Measured (docs/benchmarks.md): small requests, and bytes of large ones."""
_SMOOTHED_S: Final = 120.0


class Loads:
    """CPU ms a second by broker, as ``of_brokers``, estimated from requests and bytes."""

    def __init__(self) -> None:
        self.of_brokers: dict[int, float] = {}
        self._counted: Mapping[int, Totals] = {}
        self._counted_s = 0.0

    def note(self, counted: Mapping[int, Totals], now_s: float) -> None:
        """Take in what was counted since the start, by broker that is served here. The load of one is known after an
        interval; of one that is served elsewhere meanwhile, it is forgotten.
        """
        before, before_s = self._counted, self._counted_s
        self._counted, self._counted_s = counted, now_s
        loads = dict(self.of_brokers)
        self.of_brokers.clear()
        for broker in counted.keys() & before.keys():
            requests, size = (now - then for now, then in zip(counted[broker], before[broker], strict=True))
            load = max(_REQUEST_MS * requests + _BYTE_MS * size, 0.0) / (now_s - before_s)
            smoothed = loads.get(broker, load)
            self.of_brokers[broker] = load + (smoothed - load) * exp((before_s - now_s) / _SMOOTHED_S)
