"""Connection rates as a broker has them (ConnectionQuotas, KIP-612): of the proxy, of each listener, of addresses.

The limits of the proxy and of a listener delay accepting; the limit of an address refuses. An address without a limit
has no counter. Under the limit of the default ip every address has its own counter at each broker, as in Kafka. Clients
choose their addresses (an IPv6 host has 2^64), so the number of these counters is bounded: see ``ConnectionRates``.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.names import FOLDED, fold
from quotas.networks import canonical_ip, network_of
from quotas.policy import Policy
from quotas.rate import Rate, Window

KIND: Final = QuotaKind.CONNECTION_CREATION_RATE
UNLIMITED: Final = 2**31 - 1
"""Int.MaxValue, which Kafka treats as unlimited: connections are not even recorded."""
MOST_ADDRESSES: Final = 20_000
"""Counters of single addresses under the default limit: 9 MB with one sample each, 36 MB with all."""
MOST_IN_NETWORK: Final = 256
"""Those of one IPv6 /64 (one host or one site) at one broker."""
MOST_NETWORKS: Final = 2000
"""Counters of networks, for their further addresses."""
BACKLOG: Final = 1024
"""The backlog of a listening socket: connections that may wait to be accepted."""

_BY_DEFAULT: Final = Entity(ip=Default.DEFAULT)

_Key = tuple[str, int | None]
"""An address, or a network or FOLDED, and the node id of a broker, None if it is not known."""


class AcceptRate(NamedTuple):
    """The current rate of a listener, or of the proxy if ``listener`` is "", in connections per second."""

    listener: str
    rate: float
    limit: float | None


class IpRate(NamedTuple):
    """The state of the counter of one address, of a network that shares one, or of FOLDED, at one broker."""

    ip: str
    broker: int | None
    """Node id; None: connections whose broker is not known, and FOLDED."""
    entity: Entity
    """The entity that the limit is configured for."""
    limit: float
    rate: float


def counted_as(host: str) -> str:
    """Return the canonical form of a peer's address: no scope, one spelling, IPv4 for IPv4-mapped addresses."""
    return canonical_ip(host) if ":" in host else host


class _Counter:
    """The rate of an address, or of several that share a counter."""

    __slots__ = ("entity", "last_ms", "network", "rate")

    def __init__(self, rate: Rate, network: _Key | None) -> None:
        self.rate = rate
        self.network = network
        """The /64 whose share of a broker's counters (MOST_IN_NETWORK) it uses; None for all others."""
        self.entity = _BY_DEFAULT
        self.last_ms = 0


class ConnectionRates:
    """The rates of one proxy. Listeners in ``exempt`` do not count towards the proxy's rate (Kafka's inter-broker
    listener).

    An address has one counter for each broker that it connects to. With a limit by name these are always its own. Under
    the default limit, the first MOST_IN_NETWORK of an IPv6 /64 and MOST_ADDRESSES in all are of one address; further
    addresses share the counter of their network, and beyond MOST_NETWORKS the counter FOLDED.

    ``Rate.charge`` is not used: it needs increasing times, and a listener that has waited may charge an earlier one.
    """

    __slots__ = (
        "_default",
        "_exempt",
        "_in_network",
        "_limits",
        "_listeners",
        "_of_address",
        "_of_network",
        "_proxy",
        "_window",
    )

    def __init__(
        self, window: Window, rate: float | None, listeners: Mapping[str, float | None], exempt: Collection[str] = ()
    ) -> None:
        self._window = window
        self._proxy = _new(window, rate)
        self._listeners = {name: _new(window, limit) for name, limit in listeners.items()}
        self._exempt = frozenset(exempt)
        self._limits: dict[str, float] = {}
        self._default: float | None = None
        # In both the most recently used counter comes last.
        self._of_address: dict[_Key, _Counter] = {}
        self._of_network: dict[_Key, _Counter] = {}
        self._in_network: dict[_Key, int] = {}

    def set_limit(self, listener: str | None, limit: float | None) -> None:
        """Set the limit of a listener, or of the proxy."""
        (self._proxy if listener is None else self._listeners[listener]).set_limit(limit)

    def apply(self, policy: Policy) -> None:
        """Apply the limits of addresses at once, including to connections already recorded."""
        table = policy.book(KIND).limits
        self._limits = {name: limit for (name, _), limit in table.items() if isinstance(name, str)}
        self._default = table.get((Default.DEFAULT, None))
        for (ip, _), counter in self._of_address.items():
            limit, counter.entity = self.limit_of(ip)
            counter.rate.set_limit(limit)
        for counter in self._of_network.values():
            counter.rate.set_limit(_limited(self._default))

    def arrive(self, listener: str, now_ms: int) -> int:
        """Record a connection that ``listener`` has taken; return how long it waits in ms, at most one sample."""
        wait_ms = _charge(self._listeners[listener], now_ms)
        return wait_ms if listener in self._exempt else max(wait_ms, _charge(self._proxy, now_ms))

    def admit(self, listener: str, ip: str, broker: int | None, now_ms: int) -> int:
        """Record a connection of an address to a broker, None while it is not known which. Returns how many ms to hold
        it before closing it; 0 accepts it.

        A refused connection is removed from all rates: only accepted ones count.
        """
        counter = self._find(ip, broker, now_ms)
        if counter is None:
            return 0
        throttle_ms = _charge(counter.rate, now_ms)
        if throttle_ms > 0:
            counter.rate.record(-1.0, now_ms)
            self._listeners[listener].record(-1.0, now_ms)
            if listener not in self._exempt:
                self._proxy.record(-1.0, now_ms)
        return throttle_ms

    def assign(self, ip: str, broker: int, admitted_ms: int, now_ms: int) -> int:
        """Record a connection at its broker, which was not known when it was admitted. Returns as ``admit``.

        Accepted, it does not count as one without a known broker any more, unless its sample may have expired. Refused,
        it does: an address that is over its rate at a broker is refused unseen next.
        """
        at_broker, before = self._find(ip, broker, now_ms), self._find(ip, None, now_ms)
        if at_broker is None or before is None or at_broker is before:
            return 0
        throttle_ms = _charge(at_broker.rate, now_ms)
        if throttle_ms > 0:
            at_broker.rate.record(-1.0, now_ms)
        elif now_ms - admitted_ms < self._window.keep_ms - self._window.size_ms:
            before.rate.record(-1.0, now_ms)
        return throttle_ms

    def limit_of(self, ip: str) -> tuple[float | None, Entity]:
        """Return the limit that applies to an address and the entity it is configured for. Changes nothing."""
        if ip in self._limits:
            return _limited(self._limits[ip]), Entity(ip=ip)
        return _limited(self._default), _BY_DEFAULT

    def expire(self, now_ms: int) -> None:
        """Drop the counters of addresses that are idle."""
        for counters in (self._of_address, self._of_network):
            gone = []
            for name, counter in counters.items():
                if now_ms - counter.last_ms < self._window.keep_ms:
                    break
                gone.append(name)
            for name in gone:
                self._leave(counters.pop(name))

    def usage(self, now_ms: int) -> list[AcceptRate]:
        """Return the rates of the proxy and its listeners. Changes nothing."""
        rates = [("", self._proxy), *self._listeners.items()]
        return [AcceptRate(name, rate.rate(now_ms), rate.limit) for name, rate in rates]

    def usage_of_addresses(self, now_ms: int) -> Iterator[IpRate]:
        """Yield the state of each counter of addresses. The caller may stop early."""
        for (ip, broker), counter in [*self._of_address.items(), *self._of_network.items()]:
            limit = counter.rate.limit
            if limit is not None:
                yield IpRate(ip, broker, counter.entity, limit, counter.rate.rate(now_ms))

    def _find(self, ip: str, broker: int | None, now_ms: int) -> _Counter | None:
        """Return the counter of an address at a broker, None where it has no limit."""
        if not self._limits and self._default is None:
            return None
        limit, entity = self.limit_of(ip)
        if limit is None:
            return None
        key = ip, broker
        if key in self._of_address:
            counter = self._of_address.pop(key)
        else:
            by_default = entity is _BY_DEFAULT
            network = (network_of(ip), broker) if by_default and ":" in ip else None
            crowded = network is not None and self._in_network.get(network, 0) >= MOST_IN_NETWORK
            if by_default and (crowded or len(self._of_address) >= MOST_ADDRESSES):
                return self._find_of_network(ip, broker, limit, now_ms)
            counter = _Counter(_new(self._window, limit), network)
            counter.entity = entity
            if network is not None:
                self._in_network[network] = self._in_network.get(network, 0) + 1
        self._of_address[key] = counter
        counter.last_ms = now_ms
        return counter

    def _find_of_network(self, ip: str, broker: int | None, limit: float, now_ms: int) -> _Counter:
        key: _Key = network_of(ip), broker
        key = fold(key, self._of_network, MOST_NETWORKS, (FOLDED, None))
        counter = self._of_network.pop(key, None) or _Counter(_new(self._window, limit), None)
        self._of_network[key] = counter
        counter.last_ms = now_ms
        return counter

    def _leave(self, counter: _Counter) -> None:
        if counter.network is not None:
            self._in_network[counter.network] -= 1
            if not self._in_network[counter.network]:
                del self._in_network[counter.network]


class SimulatedAcceptor:
    """The accept delays that one listener would have if its limits were enforced.

    An acceptor that waits leaves new connections in the backlog and takes them one by one. This simulates that backlog;
    otherwise every connection above the limit would count as delayed, all at the same time.
    """

    __slots__ = ("_free_ms", "_listener", "_pending", "_rates")

    def __init__(self, rates: ConnectionRates, listener: str) -> None:
        self._rates = rates
        self._listener = listener
        self._pending = 0
        self._free_ms = 0

    def arrive(self, now_ms: int) -> list[int]:
        """Add a connection; return the delays that would have begun by now, in ms."""
        waits = self.settle(now_ms)
        if not self._pending:
            self._free_ms = max(self._free_ms, now_ms)
        self._pending = min(self._pending + 1, BACKLOG)
        return waits + self.settle(now_ms)

    def settle(self, now_ms: int) -> list[int]:
        """Return the delays that would have begun since the last call, in ms."""
        waits: list[int] = []
        while self._pending and self._free_ms <= now_ms:
            self._pending -= 1
            wait_ms = self._rates.arrive(self._listener, self._free_ms)
            if wait_ms > 0:
                self._free_ms += wait_ms
                waits.append(wait_ms)
        return waits


def _limited(limit: float | None) -> float | None:
    return None if limit == UNLIMITED else limit


def _new(window: Window, limit: float | None) -> Rate:
    return Rate(window, limit, cap_ms=window.size_ms)


def _charge(rate: Rate, now_ms: int) -> int:
    rate.record(1.0, now_ms)
    return 0 if rate.limit is None else rate.check(now_ms)
