"""Names for clients whose mechanism shows no user, but a credential by which one can be told from another.

Such a name says "the same as before", not who. It is a pseudo principal, ``sluice:<mechanism>:<credential>``, and no
more: whoever can get new credentials at will would have a new counter with each, so the names of one address have a
bound, and so have all. Who finds no place is one of those who share ``sluice:<mechanism>``.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.identity.principal import of_credential, unread

MOST: Final = 1024
"""Names of one listener."""
KEPT_MS: Final = 3_600_000
"""For how long a name keeps its place behind its last connection: else each connection could bring another one."""
_IPV6_BITS: Final = 64
"""What one customer has of IPv6 addresses."""


@dataclass(slots=True)
class _Place:
    address: str
    connections: int
    left_ms: int


class Credentials:
    """The credentials that have names, of one listener.

    ``on_shared(mechanism, credential is known)`` is told of each login that is one of those who share a counter.
    """

    def __init__(self, most_of_address: int, clock: Callable[[], int], on_shared: Callable[[str, bool], None]) -> None:
        self._most_of_address = most_of_address
        self._clock = clock
        self._on_shared = on_shared
        self._places: dict[str, _Place] = {}
        self._of_address: dict[str, set[str]] = {}

    def user(self, mechanism: str, credential: str | None, peer: str) -> str:
        """Return the user of a client at ``peer`` that the broker has authenticated. Its connection gives it back."""
        if credential is None:
            self._on_shared(mechanism, False)
            return unread(mechanism)
        user = of_credential(mechanism, credential)
        place = self._places.get(user) or self._take(user, network_of(peer))
        if place is None:
            self._on_shared(mechanism, True)
            return unread(mechanism)
        place.connections += 1
        return user

    def give_back(self, user: str) -> None:
        """Take note that a connection of ``user`` is over, if it is one of these."""
        place = self._places.get(user)
        if place is not None:
            place.connections -= 1
            place.left_ms = self._clock()

    def _take(self, user: str, address: str) -> _Place | None:
        taken = self._of_address.get(address, set())
        if len(taken) >= self._most_of_address:
            self._drop_old(taken)
        if len(self._places) >= MOST:
            self._drop_old(self._places)
        if len(self._of_address.get(address, ())) >= self._most_of_address or len(self._places) >= MOST:
            return None
        self._of_address.setdefault(address, set()).add(user)
        place = self._places[user] = _Place(address, 0, 0)
        return place

    def _drop_old(self, users: "set[str] | dict[str, _Place]") -> None:
        since_ms = self._clock() - KEPT_MS
        for user in [*users]:
            place = self._places[user]
            if not place.connections and place.left_ms < since_ms:
                del self._places[user]
                of_address = self._of_address[place.address]
                of_address.discard(user)
                if not of_address:
                    del self._of_address[place.address]


def network_of(peer: str) -> str:
    """Return the address of ``host:port``, of IPv6 its network."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_BITS), strict=False))
