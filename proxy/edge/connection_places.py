"""Who has a place in the proxy: how many connections there may be, in all and from one address.

Connections that have not sent a request yet are the ones that strangers can have for nothing. They hold few places
at a time, and where room is wanted it is one of them that goes: the oldest of the address that has most of them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from protocol.errors import Cause, ProtocolError

GRACE_S: Final = 5.0
"""How long a connection may be without a request before it makes room: when a proxy was started again, all clients
come at once, and to send off those that have waited longest for their handshake would help none of them."""


class FullError(Exception):
    """There is no place left, and nobody who could make room."""


class Place:
    """The place of one connection, taken until its descriptors are closed."""

    __slots__ = ("_places", "entered_s", "host", "make_room", "open_ends")

    def __init__(
        self, places: "Places", host: str, entered_s: float, make_room: Callable[[ProtocolError], None]
    ) -> None:
        self._places = places
        self.entered_s = entered_s
        self.host = host
        """The IP address that it counts for; "" as long as that is not known, behind a load balancer."""
        self.make_room: Callable[[ProtocolError], None] | None = make_room
        """Tells a connection without a request that its place is given to another one already."""
        self.open_ends = 1
        """The client's descriptor, and later the broker's; 0 when the place is taken no more."""

    def end_lost(self) -> None:
        """Take note that a descriptor is closed."""
        if self.open_ends:
            self.open_ends -= 1
            if not self.open_ends:
                self._places.remove(self)


class Places:
    """The places of a process."""

    def __init__(
        self, *, most: int, most_of_ip: int | None, overrides: Mapping[str, int], most_before_request: int
    ) -> None:
        self.most = most
        self._most_of_ip = max(most // 2, 1) if most_of_ip is None else most_of_ip
        self._overrides = overrides
        self._most_before_request = most_before_request
        self._numbers: dict[str, int] = {}
        self._before_request: dict[str, dict[Place, None]] = {}
        """By host, the oldest first."""
        self.grace_s = GRACE_S
        self.taken = 0
        self.before_request = 0

    def enter(self, host: str, now_s: float, make_room: Callable[[ProtocolError], None]) -> Place:
        """Take a place. Raises ProtocolError where ``host`` has too many, FullError where nobody makes room."""
        self._require_room_for(host)
        if self.taken >= self.most:
            crowd = self._largest_crowd()
            if len(crowd) <= len(self._before_request.get(host, ())) or not self._send_off(crowd, now_s):
                raise FullError
        while self.before_request >= self._most_before_request:
            if not self._send_off(self._largest_crowd(), now_s):
                break
        place = Place(self, host, now_s, make_room)
        self._add(place)
        return place

    def name(self, place: Place, host: str) -> None:
        """Count ``place``, whose client a load balancer has named, for ``host``. Raises ProtocolError as ``enter``."""
        if place.open_ends:
            self._require_room_for(host)
            self.remove(place)
            place.host = host
            self._add(place)

    def settle(self, place: Place) -> None:
        """Take note of the first request: from now on this one makes room for nobody."""
        place.make_room = None
        self._leave_crowd(place)

    def remove(self, place: Place) -> None:
        """Count ``place`` no more; called once, when it is left."""
        if place.make_room is not None:
            self._leave_crowd(place)
        self.taken -= 1
        self._numbers[place.host] -= 1
        if not self._numbers[place.host]:
            del self._numbers[place.host]

    def _leave_crowd(self, place: Place) -> None:
        crowd = self._before_request.get(place.host, {})
        if place in crowd:
            del crowd[place]
            self.before_request -= 1
            if not crowd:
                del self._before_request[place.host]

    def _add(self, place: Place) -> None:
        self.taken += 1
        self._numbers[place.host] = self._numbers.get(place.host, 0) + 1
        self._before_request.setdefault(place.host, {})[place] = None
        self.before_request += 1

    def _require_room_for(self, host: str) -> None:
        most = self._overrides.get(host, self._most_of_ip)
        if host and self._numbers.get(host, 0) >= most:
            raise ProtocolError(
                Cause.CONNECTIONS_PER_IP,
                f"this address has {most} connections already: see limits.connections_per_ip",
            )

    def _largest_crowd(self) -> dict[Place, None]:
        return max(self._before_request.values(), key=len, default={})

    def _send_off(self, crowd: dict[Place, None], now_s: float) -> bool:
        """Have the oldest of ``crowd`` make room, unless it has just come."""
        oldest = next(iter(crowd))
        if now_s - oldest.entered_s < self.grace_s:
            return False
        make_room = oldest.make_room
        oldest.open_ends = 0
        self.remove(oldest)
        if make_room is not None:
            make_room(
                ProtocolError(
                    Cause.CONNECTIONS_BEFORE_REQUEST,
                    "sent no request yet, and its place is needed: see limits.connections_before_request",
                )
            )
        return True
