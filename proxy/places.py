"""Who has a place in the proxy: how many connections there may be, in all and from one address.

Connections that have not sent a request yet are the ones that strangers can have for nothing. They hold few places
at a time, and where room is wanted it is one of them that goes: the oldest of the address that has most of them.
"""

from collections.abc import Mapping
from typing import Protocol

from protocol.errors import Cause, ProtocolError


class Guest(Protocol):
    """One connection, as far as its place is concerned."""

    host: str
    """The IP address that it counts for; "" as long as that is not known, behind a load balancer."""

    def make_room(self, error: ProtocolError) -> None:
        """Go, before the first request: the place is given to another one already."""
        ...


class FullError(Exception):
    """There is no place left, and nobody who could make room."""


class Places:
    """The places of a process. ``leave`` gives one back, once its descriptors are closed."""

    def __init__(
        self, *, most: int, most_of_ip: int | None, overrides: Mapping[str, int], most_before_request: int
    ) -> None:
        self.most = most
        self._most_of_ip = max(most // 2, 1) if most_of_ip is None else most_of_ip
        self._overrides = overrides
        self._most_before_request = most_before_request
        self._hosts: dict[Guest, str] = {}
        self._numbers: dict[str, int] = {}
        self._before_request: dict[str, dict[Guest, None]] = {}
        """By host, the oldest first."""
        self.before_request = 0

    def __len__(self) -> int:
        """Return how many are taken."""
        return len(self._hosts)

    def enter(self, guest: Guest) -> None:
        """Take a place. Raises ProtocolError where its address has too many, FullError where nobody makes room."""
        self._require_room_for(guest.host)
        if len(self._hosts) >= self.most:
            crowd = self._largest_crowd()
            if len(crowd) <= len(self._before_request.get(guest.host, ())):
                raise FullError
            self._send_off(crowd)
        elif self.before_request >= self._most_before_request:
            self._send_off(self._largest_crowd())
        self._add(guest)

    def name(self, guest: Guest, host: str) -> None:
        """Count ``guest``, whose load balancer has named it, for ``host``. Raises ProtocolError as ``enter``."""
        if guest in self._hosts:
            self._require_room_for(host)
            self.leave(guest)
            guest.host = host
            self._add(guest)

    def settle(self, guest: Guest) -> None:
        """Take note of its first request: from now on it makes room for nobody."""
        crowd = self._before_request.get(guest.host, {})
        if guest in crowd:
            del crowd[guest]
            self.before_request -= 1
            if not crowd:
                del self._before_request[guest.host]

    def leave(self, guest: Guest) -> None:
        """Give the place back, if it has one still."""
        host = self._hosts.pop(guest, None)
        if host is not None:
            self.settle(guest)
            self._numbers[host] -= 1
            if not self._numbers[host]:
                del self._numbers[host]

    def _add(self, guest: Guest) -> None:
        host = guest.host
        self._hosts[guest] = host
        self._numbers[host] = self._numbers.get(host, 0) + 1
        self._before_request.setdefault(host, {})[guest] = None
        self.before_request += 1

    def _require_room_for(self, host: str) -> None:
        most = self._overrides.get(host, self._most_of_ip)
        if host and self._numbers.get(host, 0) >= most:
            raise ProtocolError(
                Cause.CONNECTIONS_PER_IP,
                f"{most} connections from this address already: see limits.connections_per_ip",
            )

    def _largest_crowd(self) -> dict[Guest, None]:
        return max(self._before_request.values(), key=len, default={})

    def _send_off(self, crowd: dict[Guest, None]) -> None:
        oldest = next(iter(crowd))
        self.leave(oldest)
        oldest.make_room(
            ProtocolError(
                Cause.CONNECTIONS_BEFORE_REQUEST,
                "no request yet, and others need the place: see limits.connections_before_request",
            )
        )
