"""Limits on the number of connections: in all, per listener and per address.

Connections without a request are free for strangers to open. Few of them are allowed at a time, and a newcomer evicts
one of them: the oldest of the network that has most.
"""

from collections.abc import Callable, Mapping
from typing import Final

from config.settings import Settings
from protocol.errors import Cause, ProtocolError
from proxy.edge.crowds import Crowds, network_of

GRACE_S: Final = 5.0
"""How long a connection without a request is safe from eviction. After a restart all clients reconnect at once;
evicting those that have waited longest for their handshake would help none of them."""

_MOST_EVICTED: Final = 4
"""Connections that one newcomer may evict, so that those of a storm are not all closed at once."""


class FullError(Exception):
    """All slots are taken and none can be evicted. ``outcome`` is the label under which the connection is counted."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class ConnectionSlot:
    """The slot of one connection, taken until its descriptors are closed."""

    __slots__ = ("_slots", "entered_s", "evict", "host", "listener", "network", "open_descriptors")

    def __init__(
        self,
        slots: "ConnectionSlots",
        host: str,
        entered_s: float,
        evict: Callable[[ProtocolError], None],
        listener: str,
    ) -> None:
        self._slots = slots
        self.entered_s = entered_s
        self.host = host
        """The IP address that it counts for; "" while that is unknown, behind a load balancer."""
        self.network = network_of(host)
        self.listener = listener
        self.evict: Callable[[ProtocolError], None] | None = evict
        """Closes the connection, whose slot is given to another; unset once it has sent a request."""
        self.open_descriptors = 1
        """Open descriptors: the client's, and later the broker's; 0 once the slot is free."""

    def descriptor_closed(self) -> None:
        """Note that a descriptor is closed."""
        if self.open_descriptors:
            self.open_descriptors -= 1
            if not self.open_descriptors:
                self._slots.remove(self)


class _SlotTable:
    """Slots in use under one limit: of one listener, or of the process."""

    __slots__ = ("crowds", "most", "numbers", "numbers_of_networks", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.numbers: dict[str, int] = {}
        """Connections by host."""
        self.numbers_of_networks: dict[str, int] = {}
        self.crowds = Crowds()


class ConnectionSlots:
    """The connection slots of a process. ``most_of``: limits of single listeners.

    Without a limit per address (``most_of_ip``), one network may have half of all slots, and half of a listener's.
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
        self._all = _SlotTable(most)
        self._tables = {listener: _SlotTable(number) for listener, number in (most_of or {}).items()}
        self.grace_s = GRACE_S

    @property
    def most(self) -> int:
        """The number of slots."""
        return self._all.most

    @property
    def taken(self) -> int:
        """The number of slots in use."""
        return self._all.taken

    @property
    def before_request(self) -> int:
        """The number of slots of connections without a request."""
        return self._all.crowds.number

    def enter(
        self, host: str, now_s: float, evict: Callable[[ProtocolError], None], listener: str = ""
    ) -> ConnectionSlot:
        """Take a slot. Raises ProtocolError if ``host`` has too many, FullError if none can be evicted."""
        tables = self._tables_of(listener)
        for table in tables:
            self._require_slot_for(host, table)
        for table in tables:
            if table.taken >= table.most:
                crowd = table.crowds.largest()
                if len(crowd) <= table.crowds.of(network_of(host)) or not self._evict_oldest(crowd, now_s):
                    raise FullError("refused_limit" if table is self._all else "refused_listener_limit")
        for _ in range(_MOST_EVICTED):
            if self.before_request < self._most_before_request:
                break
            if not self._evict_oldest(self._all.crowds.largest(), now_s):
                break
        slot = ConnectionSlot(self, host, now_s, evict, listener)
        self._add(slot)
        return slot

    def name(self, slot: ConnectionSlot, host: str) -> None:
        """Count a slot for ``host``, as a PROXY header names its client. Raises ProtocolError as ``enter``."""
        if slot.open_descriptors:
            for table in self._tables_of(slot.listener):
                self._require_slot_for(host, table)
            self.remove(slot)
            slot.host, slot.network = host, network_of(host)
            self._add(slot)

    def settle(self, slot: ConnectionSlot) -> None:
        """Note a connection's first request: it is not evicted any more."""
        slot.evict = None
        for table in self._tables_of(slot.listener):
            table.crowds.remove(slot)

    def remove(self, slot: ConnectionSlot) -> None:
        """Free a slot; called once."""
        for table in self._tables_of(slot.listener):
            table.crowds.remove(slot)
            table.taken -= 1
            _count(table.numbers, slot.host, -1)
            _count(table.numbers_of_networks, slot.network, -1)

    def _tables_of(self, listener: str) -> tuple[_SlotTable, ...]:
        """Return the listener's table before the process's: an eviction there frees a slot in both."""
        table = self._tables.get(listener)
        return (self._all,) if table is None else (table, self._all)

    def _add(self, slot: ConnectionSlot) -> None:
        for table in self._tables_of(slot.listener):
            table.taken += 1
            _count(table.numbers, slot.host, 1)
            _count(table.numbers_of_networks, slot.network, 1)
            table.crowds.add(slot)

    def _require_slot_for(self, host: str, table: _SlotTable) -> None:
        most = self._overrides.get(host, self._most_of_ip)
        if most is None:
            most, taken = max(table.most // 2, 1), table.numbers_of_networks.get(network_of(host), 0)
        else:
            taken = table.numbers.get(host, 0)
        if host and taken >= most:
            raise ProtocolError(
                Cause.CONNECTIONS_PER_IP,
                f"this address has {most} connections already: see limits.connections_per_ip",
            )

    def _evict_oldest(self, crowd: dict[ConnectionSlot, None], now_s: float) -> bool:
        """Evict the oldest of ``crowd``, unless it has just connected; return whether it was evicted."""
        oldest = next(iter(crowd))
        if now_s - oldest.entered_s < self.grace_s:
            return False
        evict = oldest.evict
        oldest.open_descriptors = 0
        self.remove(oldest)
        if evict is not None:
            evict(
                ProtocolError(
                    Cause.CONNECTIONS_BEFORE_REQUEST,
                    "sent no request yet, and its slot is needed: see limits.connections_before_request",
                )
            )
        return True


def _count(numbers: dict[str, int], key: str, change: int) -> None:
    numbers[key] = numbers.get(key, 0) + change
    if not numbers[key]:
        del numbers[key]


def slots_of(settings: Settings, most: int) -> ConnectionSlots:
    """Return the slots that the settings configure, at most ``most``."""
    limits = settings.limits
    return ConnectionSlots(
        most=most,
        most_of_ip=limits.connections_per_ip,
        overrides=dict(limits.connections_per_ip_overrides.pairs),
        most_before_request=limits.connections_before_request,
        most_of={
            each.name: each.limits.connections for each in settings.listeners if each.limits.connections is not None
        },
    )
