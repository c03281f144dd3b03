"""The rules that a connection has to pass before it has a session, each asked once, when the facts are known that it
needs: the rate of its address, the owner of its broker, its place, and rate and number of its address at the broker.
"""

import random
from asyncio import TimerHandle
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from protocol.errors import Cause, ProtocolError
from proxy.edge.arrival import ADDRESS, BROKER, REQUEST, Arrival, Close, Refused
from proxy.edge.broker_connector import BrokerConnector
from proxy.edge.connection_gate import ConnectionGate
from proxy.edge.connection_slots import ConnectionSlots, FullError
from proxy.edge.stats import Stats
from proxy.runtime.tasks import later
from proxy.usage.accounts import Accounts

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

MOST_HELD: Final = 250
MOST_OF_ADDRESS: Final = 32
"""A greedy address shortens no hold but its own."""
_HOLD_S: Final = (0.05, 0.1)
LET_IN: Final = 0.25
"""By chance, and not one after three others: a client's connections may come in a pattern."""


class Door(Protocol):
    """One rule. ``needs``: the facts that have to be known."""

    @property
    def needs(self) -> int: ...

    def check(self, arrival: Arrival) -> Refused | None:
        """Count the connection; return how it is refused, None if it may go on."""
        ...


@dataclass(frozen=True)
class RateOfAddress:
    """``connection_creation_rate``, at the broker as far as that is known."""

    listener: str
    gate: ConnectionGate
    accounts: Accounts
    needs: int = ADDRESS

    def check(self, arrival: Arrival) -> Refused | None:
        host, broker, arrival.admitted_ms = arrival.host, arrival.counted_at, self.gate.clock()
        exempt = self.accounts.exemptions.covers_address(host)
        throttle_ms = self.gate.admit(self.listener, host, broker, exempt=exempt)
        return self.refused(host, broker, throttle_ms) if throttle_ms else None

    def refused(self, host: str, broker: int | None, throttle_ms: int) -> Refused:
        """Return how a connection is refused that is to be held so long."""
        error = ProtocolError(Cause.CONNECTION_RATE_PER_IP, self.gate.why_refused(host))
        return Refused(error, by_limit=True, hold=partial(self.gate.hold, host, broker, throttle_ms))


@dataclass(frozen=True)
class AtBroker:
    """Rate and number of an address at its broker, where that was not known when they were asked for first."""

    rate: RateOfAddress
    slots: ConnectionSlots
    connector: BrokerConnector
    needs: int = BROKER | REQUEST

    def check(self, arrival: Arrival) -> Refused | None:
        if arrival.counted_at is not None or arrival.slot is None:
            return None
        broker = self.connector.next() if arrival.node_id is None else arrival.node_id
        if broker is None:
            return None
        rate, host = self.rate, arrival.host
        exempt = rate.accounts.exemptions.covers_address(host)
        throttle_ms = rate.gate.assign(rate.listener, host, broker, arrival.admitted_ms, exempt=exempt)
        if throttle_ms:
            return rate.refused(host, broker, throttle_ms)
        try:
            self.slots.assign(arrival.slot, broker)
        except ProtocolError as error:
            return Refused(error, by_limit=True)
        arrival.counted_at = broker
        return None


@dataclass(frozen=True)
class Places:
    """Limits of connections, in all, of a listener and of an address. Behind a load balancer a connection has a place
    before its address is known.
    """

    listener: str
    slots: ConnectionSlots
    stats: Stats | None = None
    """Where to count those that have a place as accepted."""
    needs: int = ADDRESS

    def check(self, arrival: Arrival) -> Refused | None:
        try:
            if arrival.slot is not None:
                self.slots.name(arrival.slot, arrival.host)
                return None
            arrival.slot = self.slots.enter(
                arrival.host, arrival.counted_at, arrival.came_s, arrival.evicted, self.listener
            )
            if self.stats is not None:
                self.stats.connections[self.listener, "accepted"] += 1
        except ProtocolError as error:
            return Refused(error, by_limit=True)
        except FullError as full:
            return Refused(outcome=full.outcome, by_limit=True)
        return None


@dataclass(frozen=True)
class OwnerOfBroker:
    """With several instances: whether this one owns the broker that a client wants, or anybody knows who owns any.

    Connections for others' brokers are held unread for a moment, and then closed. A client takes that for a broker that
    has gone away, and asks for Metadata, which names the owner. Closed at once, some clients connect again a hundred
    times before they ask. There is no answer to give: any error would be untrue.

    Some clients ask only brokers that they know of, and all of their addresses may be old. One connection in four is
    therefore let in: it may ask, and is closed by any other request.
    """

    owners: "OwnersInForce"
    turned_away: "TurnedAway"
    needs: int = BROKER

    def check(self, arrival: Arrival) -> Refused | None:
        owners, node_id = self.owners, arrival.node_id
        if (owners.are_known if node_id is None else owners.owns(node_id)) or is_let_in(owners):
            return None
        return Refused(outcome="not_owner", hold=partial(self.turned_away.hold, arrival.peer.host))


def is_let_in(owners: "OwnersInForce | None") -> bool:
    """Whether a connection for another instance's broker may ask; not while nobody could be told the owners."""
    return owners is not None and owners.are_known and random.random() < LET_IN


def hold_s() -> float:
    """Return how long to hold a connection: spread, so that clients of one broker do not all come back at once."""
    return random.uniform(*_HOLD_S)


class TurnedAway:
    """The connections that are held for others' brokers, by the address of their client, in the order of arrival."""

    def __init__(self) -> None:
        self.most = MOST_HELD
        """Over this number the oldest is closed early."""
        self._held: dict[Close, tuple[str, TimerHandle]] = {}
        self._by_address: dict[str, dict[Close, None]] = {}

    def hold(self, host: str, close: Close) -> None:
        """Call ``close`` of a connection from ``host`` in a moment."""
        timer = later(
            hold_s(),
            "close a connection of another instance's broker",
            self._close,
            close,
            otherwise=close,
        )
        self._held[close] = host, timer
        of_address = self._by_address.setdefault(host, {})
        of_address[close] = None
        if len(of_address) > MOST_OF_ADDRESS:
            self._close(next(iter(of_address)))
        elif len(self._held) > self.most:
            self._close(next(iter(self._held)))

    def close(self) -> None:
        """Close all connections."""
        for close in list(self._held):
            self._close(close)

    def __len__(self) -> int:
        return len(self._held)

    def __bool__(self) -> bool:
        return bool(self._held)

    def _close(self, close: Close) -> None:
        found = self._held.pop(close, None)
        if found is not None:
            host, timer = found
            timer.cancel()
            of_address = self._by_address[host]
            del of_address[close]
            if not of_address:
                del self._by_address[host]
        close()
