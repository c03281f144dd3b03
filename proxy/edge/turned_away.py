"""Connections for brokers that other instances own: they are held unread for a moment, and then closed.

A client takes that for a broker that has gone away, and asks for Metadata, which names the owner. Closed at once, some
clients connect again a hundred times before they ask. There is no answer to give: any error would be untrue.

Some clients ask only brokers that they know of, and all of their addresses may be old. One connection in four is
therefore let in: it may ask, and is closed by any other request.
"""

import random
import socket
from asyncio import TimerHandle
from typing import TYPE_CHECKING, Final

from proxy.runtime.tasks import later

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

MOST_HELD: Final = 250
MOST_OF_ADDRESS: Final = 32
"""A greedy address shortens no hold but its own."""
_HOLD_S: Final = (0.05, 0.1)
LET_IN: Final = 0.25
"""By chance, and not one after three others: a client's connections may come in a pattern."""


def is_let_in(owners: "OwnersInForce | None") -> bool:
    """Whether a connection for another instance's broker may ask; not while nobody could be told the owners."""
    return owners is not None and owners.are_known and random.random() < LET_IN


def hold_s() -> float:
    """Return how long to hold a connection: spread, so that clients of one broker do not all come back at once."""
    return random.uniform(*_HOLD_S)


class TurnedAway:
    """The sockets that are held, by the address of their client, in the order of arrival."""

    def __init__(self) -> None:
        self.most = MOST_HELD
        """Over this number the oldest is closed early."""
        self._held: dict[socket.socket, tuple[str, TimerHandle]] = {}
        self._by_address: dict[str, dict[socket.socket, None]] = {}

    def hold(self, client: socket.socket, host: str) -> None:
        """Own ``client``, which came from ``host``, and close it in a moment."""
        timer = later(
            hold_s(), "close a connection of another instance's broker", self._close, client, otherwise=client.close
        )
        self._held[client] = host, timer
        of_address = self._by_address.setdefault(host, {})
        of_address[client] = None
        if len(of_address) > MOST_OF_ADDRESS:
            self._close(next(iter(of_address)))
        elif len(self._held) > self.most:
            self._close(next(iter(self._held)))

    def close(self) -> None:
        """Close all sockets."""
        for client in list(self._held):
            self._close(client)

    def __len__(self) -> int:
        return len(self._held)

    def _close(self, client: socket.socket) -> None:
        found = self._held.pop(client, None)
        if found is not None:
            host, timer = found
            timer.cancel()
            of_address = self._by_address[host]
            del of_address[client]
            if not of_address:
                del self._by_address[host]
        client.close()
