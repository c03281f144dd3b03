"""Who has a place in the proxy: how many connections there may be, in all, at one listener and from one address.

Connections that have not sent a request yet are the ones that strangers can have for nothing. They hold few places
at a time, and where room is wanted it is one of them that goes: the oldest of the network that has most of them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from config.settings import Settings
from protocol.errors import Cause, ProtocolError
from proxy.edge.crowds import Crowds, network_of

GRACE_S: Final = 5.0
"""How long a connection may be without a request before it makes room: when a proxy was started again, all clients
come at once, and to send off those that have waited longest for their handshake would help none of them."""

_MOST_SENT_OFF: Final = 4
"""Connections that one newcomer has sent off: what came together in a storm is not sent off in one go."""


class FullError(Exception):
    """There is no place left, and nobody who could make room. ``outcome`` is how such connections are counted."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Place:
    """The place of one connection, taken until its descriptors are closed."""

    __slots__ = ("_places", "entered_s", "host", "listener", "make_room", "network", "open_ends")

    def __init__(
        self,
        places: "Places",
        host: str,
        entered_s: float,
        make_room: Callable[[ProtocolError], None],
        listener: str,
    ) -> None:
        self._places = places
        self.entered_s = entered_s
        self.host = host
        """The IP address that it counts for; "" as long as that is not known, behind a load balancer."""
        self.network = network_of(host)
        self.listener = listener
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


class _Room:
    """Of one listener: its places, and who has them."""

    __slots__ = ("crowds", "most", "numbers", "numbers_of_networks", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.numbers: dict[str, int] = {}
        """By host."""
        self.numbers_of_networks: dict[str, int] = {}
        self.crowds = Crowds()


class Places:
    """The places of a process. ``most_of`` holds the listeners that have fewer of their own.

    Without a number for one address (``most_of_ip``), its network may have half of what all may have, also of a
    listener's.
    """

    def __init__(
        self,
        *,
        most: int,
        most_of_ip: int | None,
        overrides: Mapping[str, int],
        most_before_request: int,
        most_of: Mapping[str, int] | None = None,
    ) -> None:
        self._most_of_ip = most_of_ip
        self._overrides = overrides
        self._most_before_request = most_before_request
        self._all = _Room(most)
        self._rooms = {listener: _Room(number) for listener, number in (most_of or {}).items()}
        self.grace_s = GRACE_S

    @property
    def most(self) -> int:
        """How many there are."""
        return self._all.most

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._all.taken

    @property
    def before_request(self) -> int:
        """How many of those by connections without a request."""
        return self._all.crowds.number

    def enter(self, host: str, now_s: float, make_room: Callable[[ProtocolError], None], listener: str = "") -> Place:
        """Take a place. Raises ProtocolError where ``host`` has too many, FullError where nobody makes room."""
        rooms = self._rooms_of(listener)
        for room in rooms:
            self._require_room_for(host, room)
        for room in rooms:
            if room.taken >= room.most:
                crowd = room.crowds.largest()
                if len(crowd) <= room.crowds.of(network_of(host)) or not self._send_off(crowd, now_s):
                    raise FullError("refused_limit" if room is self._all else "refused_listener_limit")
        for _ in range(_MOST_SENT_OFF):
            if self.before_request < self._most_before_request:
                break
            if not self._send_off(self._all.crowds.largest(), now_s):
                break
        place = Place(self, host, now_s, make_room, listener)
        self._add(place)
        return place

    def name(self, place: Place, host: str) -> None:
        """Count ``place``, whose client a load balancer has named, for ``host``. Raises ProtocolError as ``enter``."""
        if place.open_ends:
            for room in self._rooms_of(place.listener):
                self._require_room_for(host, room)
            self.remove(place)
            place.host, place.network = host, network_of(host)
            self._add(place)

    def settle(self, place: Place) -> None:
        """Take note of the first request: from now on this one makes room for nobody."""
        place.make_room = None
        for room in self._rooms_of(place.listener):
            room.crowds.remove(place)

    def remove(self, place: Place) -> None:
        """Count ``place`` no more; called once, when it is left."""
        for room in self._rooms_of(place.listener):
            room.crowds.remove(place)
            room.taken -= 1
            _count(room.numbers, place.host, -1)
            _count(room.numbers_of_networks, place.network, -1)

    def _rooms_of(self, listener: str) -> tuple[_Room, ...]:
        """Return the listener's own before that of all: who makes room there makes room in all."""
        room = self._rooms.get(listener)
        return (self._all,) if room is None else (room, self._all)

    def _add(self, place: Place) -> None:
        for room in self._rooms_of(place.listener):
            room.taken += 1
            _count(room.numbers, place.host, 1)
            _count(room.numbers_of_networks, place.network, 1)
            room.crowds.add(place)

    def _require_room_for(self, host: str, room: _Room) -> None:
        most = self._overrides.get(host, self._most_of_ip)
        if most is None:
            most, taken = max(room.most // 2, 1), room.numbers_of_networks.get(network_of(host), 0)
        else:
            taken = room.numbers.get(host, 0)
        if host and taken >= most:
            raise ProtocolError(
                Cause.CONNECTIONS_PER_IP,
                f"this address has {most} connections already: see limits.connections_per_ip",
            )

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


def _count(numbers: dict[str, int], key: str, change: int) -> None:
    numbers[key] = numbers.get(key, 0) + change
    if not numbers[key]:
        del numbers[key]


def places_of(settings: Settings, most: int) -> Places:
    """Return the places that settings ask for, no more than ``most``."""
    limits = settings.limits
    return Places(
        most=most,
        most_of_ip=limits.connections_per_ip,
        overrides=dict(limits.connections_per_ip_overrides.pairs),
        most_before_request=limits.connections_before_request,
        most_of={
            each.name: each.limits.connections for each in settings.listeners if each.limits.connections is not None
        },
    )
