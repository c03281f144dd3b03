"""Limits on the number of connections: in all, per listener and per address.

Connections without a request are free for strangers to open. Few of them are allowed at a time, and the network that
has most of them yields its oldest. So that a few networks never keep others out, with requests or without, a network
gets one of the last places only while it has fewer than are left: of k that take all they can each has 1 / (k + 1).

The limit of open files bounds them all: each connection takes two descriptors, the client's and the broker's.
"""

import resource
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from config.settings import Settings
from protocol.errors import Cause, ProtocolError
from proxy.edge.stats import Refused
from quotas.networks import network_of

GRACE_S: Final = 5.0
"""How long a connection without a request is safe from eviction. After a restart all clients reconnect at once;
evicting those that have waited longest for their handshake would help none of them."""

_MOST_EVICTED: Final = 4
"""Connections that one newcomer may evict, so that those of a storm are not all closed at once."""
_MOST_TIDIED: Final = 100
"""Those that are closed at once, in some milliseconds, if there are too many and no newcomer comes."""
_LAST: Final = 8
"""The last places are an eighth of all."""

MOST_HELD: Final = 1000
"""Refused connections that are held at once: one costs its client nothing."""
_RESERVED: Final = 128
"""Descriptors for other uses: the admin port (32 connections), files, Metadata."""
_HELD_SHARE: Final = 16
"""One descriptor in so many may hold a connection that is refused for its rate."""
_TURNED_AWAY_SHARE: Final = 4
"""One of these in so many, a connection whose broker another instance owns."""
_UNSORTED_SHARE: Final = 8
"""One descriptor in so many may have a connection whose worker is not known yet."""

_K = TypeVar("_K")
Evict = Callable[[Refused], None]


class ConnectionSlot:
    """The slot of one connection, taken until its descriptors are closed."""

    __slots__ = ("_slots", "broker", "entered_s", "evict", "host", "listener", "network", "open_descriptors")

    def __init__(
        self, slots: "ConnectionSlots", host: str, broker: int | None, entered_s: float, evict: Evict, listener: str
    ) -> None:
        self._slots = slots
        self.host = host
        """The IP address that it counts for; "" while that is unknown, behind a load balancer."""
        self.broker = broker
        """The node id of the broker that it counts for; None while it is not known."""
        self.entered_s = entered_s
        self.evict: Evict | None = evict
        """Closes the connection, whose slot is given to another; unset once it has sent a request."""
        self.listener = listener
        self.network = network_of(host)
        self.open_descriptors = 1
        """Open descriptors: the client's, and later the broker's; 0 once the slot is free."""

    def descriptor_closed(self) -> None:
        if self.open_descriptors:
            self.open_descriptors -= 1
            if not self.open_descriptors:
                self._slots.remove(self)


class _Table:
    """The slots under one limit, of a listener or of the process: those of each network, and the crowd of those without
    a request.

    Adding, removing and finding the largest crowd take constant time: this runs for each accepted connection, and
    strangers decide from how many addresses they connect. So the first of an OrderedDict is asked for: that of a dict,
    from which the first is removed again and again, is found behind all those removed.
    """

    __slots__ = ("_by_size", "_crowds", "_largest", "most", "of_network", "silent", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.of_network: dict[str, int] = {}
        self.silent: OrderedDict[ConnectionSlot, None] = OrderedDict()
        """Slots of connections without a request, oldest first."""
        self._crowds: dict[str, OrderedDict[ConnectionSlot, None]] = {}
        """Slots of connections without a request, by network."""
        self._by_size: dict[int, OrderedDict[str, None]] = {}
        """Size of a crowd → its networks, in the order in which they reached it."""
        self._largest = 0

    def add(self, slot: ConnectionSlot) -> None:
        self.taken += 1
        _count(self.of_network, slot.network, 1)
        crowd = self._crowds.setdefault(slot.network, OrderedDict())
        crowd[slot] = self.silent[slot] = None
        self._moved(slot.network, len(crowd) - 1, len(crowd))

    def remove(self, slot: ConnectionSlot) -> None:
        self.settle(slot)
        self.taken -= 1
        _count(self.of_network, slot.network, -1)

    def settle(self, slot: ConnectionSlot) -> None:
        """Note that a slot has a request, if that is new."""
        if slot not in self.silent:
            return
        crowd = self._crowds[slot.network]
        del crowd[slot], self.silent[slot]
        self._moved(slot.network, len(crowd) + 1, len(crowd))
        if not crowd:
            del self._crowds[slot.network]

    def largest(self) -> OrderedDict[ConnectionSlot, None]:
        """Return the crowd of the network with most connections without a request; empty if there are none."""
        networks = self._by_size.get(self._largest)
        return self._crowds[next(iter(networks))] if networks else OrderedDict()

    def _moved(self, network: str, before: int, now: int) -> None:
        """Move the crowd of ``network`` from size ``before`` to ``now``, which differs by one."""
        if now:
            self._by_size.setdefault(now, OrderedDict())[network] = None
        if before:
            of_size = self._by_size[before]
            del of_size[network]
            if not of_size:
                del self._by_size[before]
        if now > self._largest or self._largest not in self._by_size:
            self._largest = now


class ConnectionSlots:
    """The connection slots of a process. ``most_of``: limits of single listeners.

    The limit of an address (``most_of_ip``) is for each broker, as a broker counts (max.connections.per.ip). With or
    without it, one network may have half of all slots, and half of a listener's; more if the limit itself is more.
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
        self._all = _Table(most)
        self._numbers: dict[tuple[str, int | None], int] = {}
        """Connections by host and broker."""
        self._tables = {listener: _Table(number) for listener, number in (most_of or {}).items()}
        self.grace_s = GRACE_S

    @property
    def taken(self) -> int:
        return self._all.taken

    @property
    def before_request(self) -> int:
        """The number of slots of connections without a request."""
        return len(self._all.silent)

    def enter(self, host: str, broker: int | None, now_s: float, evict: Evict, listener: str = "") -> ConnectionSlot:
        """Take a slot at a broker, None while it is not known which. Raises Refused if ``host`` has too many, or all
        are taken and none can be evicted.
        """
        slot = ConnectionSlot(self, host, broker, now_s, evict, listener)
        self._make_room(slot)
        self._evict_beyond(self._most_before_request - 1, _MOST_EVICTED, now_s)
        _count(self._numbers, (host, broker), 1)
        for table in self._tables_of(listener):
            table.add(slot)
        return slot

    def tidy(self, now_s: float) -> None:
        """Close connections past their grace beyond the number that may be without a request."""
        self._evict_beyond(self._most_before_request, _MOST_TIDIED, now_s)

    def assign(self, slot: ConnectionSlot, broker: int) -> None:
        """Count a slot at its broker, which was not known before. Raises Refused if ``host`` has too many."""
        if slot.open_descriptors:
            self._require_number(slot.host, broker)
            _count(self._numbers, (slot.host, slot.broker), -1)
            slot.broker = broker
            _count(self._numbers, (slot.host, slot.broker), 1)

    def settle(self, slot: ConnectionSlot) -> None:
        """Note a connection's first request: it is not evicted any more."""
        slot.evict = None
        for table in self._tables_of(slot.listener):
            table.settle(slot)

    def remove(self, slot: ConnectionSlot) -> None:
        """Free a slot; called once."""
        _count(self._numbers, (slot.host, slot.broker), -1)
        for table in self._tables_of(slot.listener):
            table.remove(slot)

    def _tables_of(self, listener: str) -> tuple[_Table, ...]:
        """Return the listener's table before the process's: an eviction there frees a slot in both."""
        table = self._tables.get(listener)
        return (self._all,) if table is None else (table, self._all)

    def _make_room(self, newcomer: ConnectionSlot) -> None:
        """See to a place for one more connection. Raises Refused if it may have none."""
        host = newcomer.host
        self._require_number(host, newcomer.broker)
        most = self._most(host)
        for table in self._tables_of(newcomer.listener):
            has, left, half = table.of_network.get(newcomer.network, 0), table.most - table.taken, table.most // 2
            if host and has >= max(half, most or 1):
                raise _too_many(max(half, most or 1), "to all brokers together")
            is_trusted = not host or (most or 0) > half
            is_one_of_the_last = not is_trusted and has >= left and left <= table.most // _LAST
            if (left <= 0 or is_one_of_the_last) and not self._evict_of_largest(table, has, newcomer.entered_s):
                if left > 0:
                    raise _too_many(has, f"to all brokers together, and {left} are left for all others")
                outcome = "refused_limit" if table is self._all else "refused_listener_limit"
                raise Refused(outcome=outcome, by_limit=True)

    def _require_number(self, host: str, broker: int | None) -> None:
        most = self._most(host)
        if host and most is not None and self._numbers.get((host, broker), 0) >= most:
            raise _too_many(most, "to this broker")

    def _most(self, host: str) -> int | None:
        return self._overrides.get(host, self._most_of_ip)

    def _evict_of_largest(self, table: _Table, has: int, now_s: float) -> bool:
        """Evict for a newcomer whose network ``has`` so many connections; return whether any was.

        Grace ends for a network that would still have as many as the newcomer's.
        """
        crowd = table.largest()
        if len(crowd) <= has or (len(crowd) == has + 1 and self._is_in_grace(next(iter(crowd)), now_s)):
            return False
        self._evict(next(iter(crowd)))
        return True

    def _evict_beyond(self, number: int, at_once: int, now_s: float) -> None:
        """Evict those without a request beyond a number, if any is past its grace, but few at once."""
        silent = self._all.silent
        for _ in range(at_once):
            if len(silent) <= number or self._is_in_grace(next(iter(silent)), now_s):
                return
            self._evict(next(iter(self._all.largest())))

    def _is_in_grace(self, slot: ConnectionSlot, now_s: float) -> bool:
        return now_s - slot.entered_s < self.grace_s

    def _evict(self, slot: ConnectionSlot) -> None:
        evict = slot.evict
        slot.open_descriptors = 0
        self.remove(slot)
        if evict is not None:
            said = "sent no request yet, and its slot is needed: see limits.connections_before_request"
            evict(Refused(ProtocolError(Cause.CONNECTIONS_BEFORE_REQUEST, said), by_limit=True))


def _too_many(most: int, where: str) -> Refused:
    said = f"this address has {most} connections {where} already: see limits.connections_per_ip"
    return Refused(ProtocolError(Cause.CONNECTIONS_PER_IP, said), by_limit=True)


def _count(numbers: dict[_K, int], key: _K, change: int) -> None:
    numbers[key] = numbers.get(key, 0) + change
    if not numbers[key]:
        del numbers[key]


def slots_of(settings: Settings, most: int) -> ConnectionSlots:
    """Return the slots that the settings configure, at most ``most``."""
    limits = settings.limits
    return ConnectionSlots(
        most=most,
        most_of_ip=limits.connections_per_ip,
        overrides=limits.connections_per_ip_overrides,
        most_before_request=limits.connections_before_request,
        most_of={
            each.name: each.limits.connections for each in settings.listeners if each.limits.connections is not None
        },
    )


class Capacity(NamedTuple):
    """Numbers of sockets that fit within the limit of open files."""

    connections: int
    held: int
    """Sockets that are held unread until they are closed, for the rate of their address."""
    turned_away: int
    """Those held because another instance owns their broker, for less than a tenth of that time."""
    unsorted: int
    """With several workers at one port: connections whose worker is not known yet."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it.

    Past the limit, uvloop accepts and closes silently, so the proxy has to refuse connections itself.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def capacity(settings: Settings, most_files: int) -> Capacity:
    """Return the configured number of connections, or else as many as fit.

    Raises OSError if fewer fit than are configured.
    """
    ports = sum(len(ports.bound) for each in settings.listeners if each.brokers for ports in each.brokers.ranges)
    held = min(MOST_HELD, most_files // _HELD_SHARE)
    turned_away = max(held // _TURNED_AWAY_SHARE, 1)
    shares_ports = settings.workers > 1 and any(each.broker_host is not None for each in settings.listeners)
    unsorted = most_files // _UNSORTED_SHARE if shares_ports else 0
    # of each listener a socket, and a delayed connection
    taken = _RESERVED + ports + 2 * len(settings.listeners) + held + unsorted
    taken += 0 if settings.owners is None else turned_away
    most = (most_files - taken) // 2
    configured = {"limits.connections": settings.limits.connections}
    configured |= {
        f"limits.connections of listener {each.name}": each.limits.connections for each in settings.listeners
    }
    for name, number in configured.items():
        if number is not None and number > most:
            raise OSError(
                f"{name}: {number} connections need {taken + 2 * number} open files, two each, and the limit is "
                f"{most_files}: raise it (ulimit -n, LimitNOFILE= of systemd), or set at most {max(most, 0)}"
            )
    if most < 1:
        raise OSError(f"a limit of {most_files} open files leaves no room for connections: raise it (ulimit -n)")
    connections = settings.limits.connections or most
    return Capacity(connections, held, turned_away, min(unsorted, connections))
