"""Slows down who gives wrong tokens, by network."""

from collections.abc import Callable
from math import ceil
from typing import Final, NamedTuple

from proxy.runtime.clock import monotonic_s

_FREE: Final = 5
"""Wrong tokens that cost no time: people mistype, and an old token may be in several places."""
_LONGEST_S: Final = 60.0
_FORGET_S: Final = 600.0
_MOST: Final = 1000
"""Beyond that, the network that was wrong first is forgotten."""


class _Wrong(NamedTuple):
    number: int
    at_s: float

    @property
    def until_s(self) -> float:
        """When the next token is looked at."""
        beyond = self.number - _FREE
        return self.at_s + min(2.0 ** min(beyond, 10), _LONGEST_S) if beyond >= 0 else self.at_s


class Guesses:
    """Wrong tokens; after five, each next one doubles the time until another token is looked at, up to a minute."""

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._wrong: dict[str, _Wrong] = {}

    def wait_s(self, network: str) -> int:
        """Return after how many seconds a token from there is looked at; 0: now."""
        wrong = self._wrong.get(network)
        return 0 if wrong is None else max(0, ceil(wrong.until_s - self._clock()))

    def count(self, network: str) -> None:
        """Count a wrong token."""
        now_s = self._clock()
        before = self._wrong.pop(network, _Wrong(0, now_s))
        if len(self._wrong) >= _MOST:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[network] = _Wrong(1 if now_s - before.at_s > _FORGET_S else before.number + 1, now_s)
