"""Connections without a request, grouped by network: finds the network with most of them in constant time."""

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.edge.connection_slots import ConnectionSlot


class Crowds:
    """The connections of each network, oldest first, and the networks by number of connections.

    Adding, removing and finding the largest take constant time: this runs for each accepted connection, and strangers
    decide from how many addresses they connect. So the first of an OrderedDict is asked for: that of a dict, from which
    the first is removed again and again, is found behind all those removed.
    """

    __slots__ = ("_by_age", "_by_network", "_by_size", "_largest")

    def __init__(self) -> None:
        self._by_network: dict[str, OrderedDict[ConnectionSlot, None]] = {}
        self._by_size: dict[int, OrderedDict[str, None]] = {}
        """Number of connections → its networks, in the order in which they reached that number."""
        self._largest = 0
        self._by_age: OrderedDict[ConnectionSlot, None] = OrderedDict()

    @property
    def number(self) -> int:
        """The number of connections."""
        return len(self._by_age)

    @property
    def oldest(self) -> "ConnectionSlot":
        """The connection that has been here longest. There has to be one."""
        return next(iter(self._by_age))

    def add(self, slot: "ConnectionSlot") -> None:
        """Add a connection."""
        crowd = self._by_network.setdefault(slot.network, OrderedDict())
        crowd[slot] = self._by_age[slot] = None
        self._moved(slot.network, len(crowd) - 1, len(crowd))

    def remove(self, slot: "ConnectionSlot") -> None:
        """Remove a connection, if it is there."""
        crowd = self._by_network.get(slot.network)
        if crowd is None or slot not in crowd:
            return
        del crowd[slot], self._by_age[slot]
        self._moved(slot.network, len(crowd) + 1, len(crowd))
        if not crowd:
            del self._by_network[slot.network]

    def largest(self) -> "OrderedDict[ConnectionSlot, None]":
        """Return the connections of the network with most of them; empty if there are none."""
        networks = self._by_size.get(self._largest)
        return self._by_network[next(iter(networks))] if networks else OrderedDict()

    def _moved(self, network: str, before: int, now: int) -> None:
        """Move ``network`` from size ``before`` to ``now``, which differs by one."""
        if now:
            self._by_size.setdefault(now, OrderedDict())[network] = None
        if before:
            of_size = self._by_size[before]
            del of_size[network]
            if not of_size:
                del self._by_size[before]
        if now > self._largest or self._largest not in self._by_size:
            self._largest = now
