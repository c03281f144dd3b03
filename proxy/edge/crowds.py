"""Connections without a request, by the network that they come from: which network has most of them, at no cost.

A network is one IPv4 address, or the 64 bits of an IPv6 address that a provider gives to one customer: who has those
has as many addresses as he likes.
"""

from ipaddress import IPv6Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.edge.connection_places import Place


def network_of(host: str) -> str:
    """Return what a stranger has to own to come from ``host``: the address, or with IPv6 its /64."""
    if ":" not in host:
        return host
    return f"{IPv6Address(int(IPv6Address(host)) >> 64 << 64)}/64"


class Crowds:
    """The connections of each network, oldest first, and the networks by how many they have.

    To add, to remove and to find the largest take the same few steps, however many there are: it is done for each
    connection that is accepted, and strangers decide from how many addresses they come.
    """

    __slots__ = ("_by_network", "_by_size", "_largest", "number")

    def __init__(self) -> None:
        self._by_network: dict[str, dict[Place, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        """Names of networks; those that have come to a size first stand first."""
        self._largest = 0
        self.number = 0

    def add(self, place: "Place") -> None:
        """Count one more."""
        crowd = self._by_network.setdefault(place.network, {})
        crowd[place] = None
        self.number += 1
        self._moved(place.network, len(crowd) - 1, len(crowd))

    def remove(self, place: "Place") -> None:
        """Count one less, if it was counted."""
        crowd = self._by_network.get(place.network)
        if crowd is None or place not in crowd:
            return
        del crowd[place]
        self.number -= 1
        self._moved(place.network, len(crowd) + 1, len(crowd))
        if not crowd:
            del self._by_network[place.network]

    def largest(self) -> "dict[Place, None]":
        """Return the largest crowd of one network; none where there is nobody."""
        networks = self._by_size.get(self._largest)
        return self._by_network[next(iter(networks))] if networks else {}

    def of(self, network: str) -> int:
        """Return how many there are of one network."""
        return len(self._by_network.get(network, ()))

    def _moved(self, network: str, before: int, now: int) -> None:
        """Note that ``network`` has ``now`` connections: one more, or one less, than ``before``."""
        if now:
            self._by_size.setdefault(now, {})[network] = None
        if before:
            of_size = self._by_size[before]
            del of_size[network]
            if not of_size:
                del self._by_size[before]
        if now > self._largest or self._largest not in self._by_size:
            self._largest = now
