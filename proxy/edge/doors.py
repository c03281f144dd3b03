"""Rules that a connection has to pass before it has a session: the rate of its address, and the owner of its broker.
Each raises Refused. ``Arriving`` asks each once, when it is known what the rule needs.

``quotas.connections`` has the arithmetic of rates. The rates of a listener and of the proxy refuse nobody: the acceptor
waits.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from config.settings import Settings
from protocol.errors import Cause, ProtocolError
from proxy.edge.connection_slots import MOST_HELD
from proxy.edge.stats import Close, Refused, Stats, ThrottleTotals
from proxy.session.throttling import Throttling, Timer
from proxy.usage.addresses import Addresses
from quotas.connections import KIND, AcceptRate, ConnectionRates, IpRate, SimulatedAcceptor
from quotas.policy import Policy
from quotas.rate import Window

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

log = structlog.get_logger("sluice.listener")

MOST_OF_ADDRESS: Final = 32
"""Limit for connections to others' brokers: a greedy address shortens no hold but its own."""
_HOLD_MS: Final = (50, 100)
"""How long one is held: spread, so that clients of one broker do not all come back at once."""
LET_IN = 0.25
"""By chance, and not one after three others: a client's connections may come in a pattern."""


class HeldConnections:
    """Connections that are held unread for a moment and then closed, in the order of arrival.

    Beyond ``most`` the oldest is closed early, and beyond ``most_of_address`` the oldest of that address.

    ``wake``: ``Alarms.add``, or ``Throttling.mute`` for a quota kind.
    """

    def __init__(
        self,
        wake: Callable[[Callable[[int], object], Callable[[], object], int], Timer],
        most_of_address: int | None = None,
    ) -> None:
        self._wake = wake
        self.most = MOST_HELD
        self._most_of_address = most_of_address
        self._held: dict[Close, tuple[str, int | None, int, Timer]] = {}

    def hold(self, host: str, broker: int | None, end_ms: int, close: Close) -> None:
        """Call ``close`` of a connection from ``host`` at ``end_ms``, or earlier if there are too many."""
        timer = self._wake(lambda _: self._close(close), close, end_ms)
        self._held[close] = host, broker, end_ms, timer
        if self._most_of_address is not None:
            of_address = [each for each, held in self._held.items() if held[0] == host]
            if len(of_address) > self._most_of_address:
                self._close(of_address[0])
        if len(self._held) > self.most:
            self._close(next(iter(self._held)))

    def close(self) -> None:
        for close in list(self._held):
            self._close(close)

    def __iter__(self) -> Iterator[tuple[str, int | None, int]]:
        """Yield the address, the broker and the end of each."""
        for host, broker, end_ms, _ in self._held.values():
            yield host, broker, end_ms

    def _close(self, close: Close) -> None:
        *_, timer = self._held.pop(close)
        timer.cancel()
        close()


# ---------------------------------------------------------------------------------------------------------------- rates


def rates_of(settings: Settings) -> ConnectionRates:
    window, listeners = settings.quotas.window, settings.listeners
    return ConnectionRates(
        Window(window.samples, window.size_ms),
        settings.limits.connection_rate,
        {each.name: each.limits.connection_rate for each in listeners},
        [each.name for each in listeners if each.limits.exempt_from_connection_rate],
    )


class ConnectionGate:
    """Applies connection rates to new connections: mode ``shadow`` counts only, ``off`` does not count."""

    def __init__(
        self,
        rates: ConnectionRates,
        throttling: Throttling,
        stats: Stats,
        clock: Callable[[], int],
        addresses: Addresses | None = None,
    ) -> None:
        """``throttling`` has the mode; ``addresses`` are counters of connections per address, for usage records."""
        self._rates = rates
        self._addresses = addresses
        self._stats = stats
        self.clock = clock
        self._throttling = throttling
        self.held = HeldConnections(partial(throttling.mute, KIND))
        """Connections of addresses over their rate."""
        self._simulated: dict[str, SimulatedAcceptor] = {}

    def apply(self, policy: Policy) -> None:
        self._rates.apply(policy)

    def delay_ms(self, listener: str) -> int:
        """Count a connection accepted by ``listener``; return how long it, and those behind it, have to wait."""
        if self._throttling.mode == "off":
            return 0
        now_ms = self.clock()
        if self._throttling.enforces:
            wait_ms = self._rates.arrive(listener, now_ms)
            if wait_ms > 0:
                self._count_waits(listener, [wait_ms])
            return wait_ms
        simulated = self._simulated.get(listener)
        if simulated is None:
            simulated = self._simulated[listener] = SimulatedAcceptor(self._rates, listener)
        self._count_waits(listener, simulated.arrive(now_ms))
        return 0

    def admit(
        self, listener: str, ip: str, broker: int | None, *, exempt: bool = False, before_ms: int | None = None
    ) -> int:
        """Count a connection of ``ip`` to a broker, None while it is not known which, and return when. Raises Refused
        if ``ip`` is over its rate there.

        ``exempt``: no rate applies. ``before_ms``: when it was counted without a broker, if it was.
        """
        now_ms, throttle_ms = self.clock(), 0
        if self._throttling.mode != "off" and not exempt:
            if before_ms is None:
                throttle_ms = self._rates.admit(listener, ip, broker, now_ms)
            elif broker is not None:
                throttle_ms = self._rates.assign(ip, broker, before_ms, now_ms)
        limit, entity = self._rates.limit_of(ip)
        if self._addresses is not None and (before_ms is None or throttle_ms > 0):
            rule = (None, None) if exempt else (limit, entity)
            attempts = 1 if before_ms is None else 0
            self._addresses.count(
                listener, ip, broker, now_ms, *rule, throttle_ms=throttle_ms, exempt=exempt, attempts=attempts
            )
        if throttle_ms > 0:
            self._stats.ip_throttles.setdefault(listener, ThrottleTotals()).add(throttle_ms)
            if self._throttling.enforces:
                said = f"more than {limit:g} connections a second (connection_creation_rate of {entity.describe()})"
                hold = partial(self.held.hold, ip, broker, now_ms + throttle_ms)
                raise Refused(ProtocolError(Cause.CONNECTION_RATE_PER_IP, said), by_limit=True, hold=hold)
        return now_ms

    def tidy(self, now_ms: int) -> None:
        """Drop idle rates and, in shadow, count the waits until now."""
        self._rates.expire(now_ms)
        if self._throttling.mode != "shadow":
            self._simulated.clear()
        for listener, simulated in self._simulated.items():
            self._count_waits(listener, simulated.settle(now_ms))

    def usage(self) -> list[AcceptRate]:
        """Return the current rates of the proxy and its listeners; none while rates are not counted."""
        return self._rates.usage(self.clock()) if self._throttling.mode != "off" else []

    def usage_of_addresses(self) -> Iterator[IpRate]:
        return self._rates.usage_of_addresses(self.clock())

    def _count_waits(self, listener: str, waits_ms: list[int]) -> None:
        """Count how long accepting waits, or in shadow would."""
        for wait_ms in waits_ms:
            throttles = self._stats.accept_throttles.setdefault(listener, ThrottleTotals())
            if not throttles.number:
                event = "first wait of accepting: connection_rate"
                log.info(event, listener=listener, wait_ms=wait_ms, mode=self._throttling.mode)
            throttles.add(wait_ms)
            if self._addresses is not None:
                self._addresses.count_wait(listener, wait_ms)


def check_owner(
    owners: "OwnersInForce | None", host: str, node_id: int | None, turned_away: HeldConnections, now_ms: int
) -> None:
    """Check, with several instances, that this one owns the broker that a client wants, or that anybody knows who owns
    any. Raises Refused.

    Connections for others' brokers are held unread for a moment, and then closed. A client takes that for a broker that
    has gone away, and asks for Metadata, which names the owner. Closed at once, some clients connect again a hundred
    times before they ask. There is no answer to give: any error would be untrue.

    Some clients ask only brokers that they know of, and all of their addresses may be old. One connection in four is
    therefore let in, unless the owners are unknown: it may ask, and is closed by any other request.
    """
    if owners is None:
        return
    is_ours = owners.are_known if node_id is None else owners.owns(node_id)
    if not is_ours and not (owners.are_known and random.random() < LET_IN):
        end_ms = now_ms + random.randint(*_HOLD_MS)
        raise Refused(outcome="not_owner", hold=partial(turned_away.hold, host, node_id, end_ms))
