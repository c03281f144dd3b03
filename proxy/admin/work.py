"""Bounds the requests that are worked on at once: connections are few, but the work for one may be much."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MOST: Final = 16
MOST_OF_A_NETWORK: Final = 8
"""So that others are answered too."""


class Work:
    """The requests that are worked on, by the network of who asks."""

    def __init__(self) -> None:
        self._by_network: Counter[str] = Counter()

    @contextmanager
    def place(self, network: str) -> Iterator[bool]:
        """Take a place for as long as the work lasts; False if there is none."""
        if self._by_network.total() >= MOST or self._by_network[network] >= MOST_OF_A_NETWORK:
            yield False
            return
        self._by_network[network] += 1
        try:
            yield True
        finally:
            self._by_network[network] -= 1
            self._by_network += Counter()  # without zeros
