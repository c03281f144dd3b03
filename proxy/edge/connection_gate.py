"""Enforces connection rates: the acceptor waits, and connections of an address over its rate are held unread, then
closed.

``quotas.connections`` has the arithmetic. ``shadow`` counts without enforcing; ``off`` does not count.
"""

from collections.abc import Callable, Iterator
from typing import Final

import structlog

from config.settings import Settings
from proxy.edge.stats import Stats, ThrottleTotals
from proxy.session.throttling import Alarm, Throttling
from proxy.usage.addresses import Addresses
from quotas.connections import KIND, AcceptRate, ConnectionRates, IpRate, SimulatedAcceptor
from quotas.policy import Policy
from quotas.rate import Window

log = structlog.get_logger("sluice.listener")

MOST_HELD: Final = 1000
"""Limit of connections held at once: a refused client occupies one at no cost to itself."""


def rates_of(settings: Settings) -> ConnectionRates:
    """Return the connection rates that the settings configure."""
    window, listeners = settings.quotas.window, settings.listeners
    return ConnectionRates(
        Window(window.samples, window.size_ms),
        settings.limits.connection_rate,
        {each.name: each.limits.connection_rate for each in listeners},
        [each.name for each in listeners if each.limits.exempt_from_connection_rate],
    )


class ConnectionGate:
    """Applies connection rates to new connections, and holds refused ones."""

    def __init__(
        self,
        rates: ConnectionRates,
        throttling: Throttling,
        stats: Stats,
        clock: Callable[[], int],
        *,
        mode: str,
        addresses: Addresses | None = None,
    ) -> None:
        """``addresses``: counters of connections per address, for usage records."""
        self._rates = rates
        self._addresses = addresses
        self._throttling = throttling
        self._stats = stats
        self.clock = clock
        self._counts = mode != "off"
        self._enforces = mode == "enforce"
        self._mode = mode
        self.most_held = MOST_HELD
        """Over this number the oldest is closed."""
        self._simulated: dict[str, SimulatedAcceptor] = {}
        self._held: dict[Callable[[], None], tuple[str, int | None, Alarm]] = {}
        """What closes a connection → its address, its broker, and when it is closed; in the order of arrival."""

    def set_mode(self, mode: str) -> None:
        """Switch the mode. Connections that are held already are closed when their time is over."""
        self._counts = mode != "off"
        self._enforces = mode == "enforce"
        self._mode = mode
        self._simulated.clear()

    def apply(self, policy: Policy) -> None:
        """Put the rates of addresses in force."""
        self._rates.apply(policy)

    def delay_ms(self, listener: str) -> int:
        """Count a connection accepted by ``listener``; return how long it, and those behind it, have to wait."""
        if not self._counts:
            return 0
        now_ms = self.clock()
        if not self._enforces:
            self._imagine(listener, now_ms)
            return 0
        wait_ms = self._rates.arrive(listener, now_ms)
        if wait_ms > 0:
            self._note_wait(listener, wait_ms)
        return wait_ms

    def admit(self, listener: str, ip: str, broker: int | None, *, exempt: bool = False) -> int:
        """Count a connection of ``ip`` to a broker, None while it is not known which. Returns how many ms to hold it
        unread before it is closed, because ``ip`` is over its rate there; 0 admits it. ``exempt``: no rate applies.
        """
        now_ms = self.clock()
        throttle_ms = self._rates.admit(listener, ip, broker, now_ms) if self._counts and not exempt else 0
        self._note(listener, ip, broker, now_ms, throttle_ms, exempt=exempt)
        return self._enforced(listener, throttle_ms)

    def assign(self, listener: str, ip: str, broker: int, admitted_ms: int, *, exempt: bool = False) -> int:
        """Count a connection at its broker, which was not known when it was admitted. Returns as ``admit``."""
        if not self._counts or exempt:
            return 0
        now_ms = self.clock()
        throttle_ms = self._rates.assign(ip, broker, admitted_ms, now_ms)
        if throttle_ms > 0:
            self._note(listener, ip, broker, now_ms, throttle_ms, attempts=0)
        return self._enforced(listener, throttle_ms)

    def hold(self, ip: str, broker: int | None, throttle_ms: int, close: Callable[[], None]) -> None:
        """Call ``close`` after the time for which a connection is held, or before if too many are."""

        def over(now_ms: int = 0) -> None:
            del now_ms
            if self._held.pop(close, None) is not None:
                close()

        alarm = self._throttling.mute(KIND, over, over, self.clock() + throttle_ms)
        self._held[close] = ip, broker, alarm
        if len(self._held) > self.most_held:
            self._close(next(iter(self._held)))

    def why_refused(self, ip: str) -> str:
        """Return the rate that a refused connection was over."""
        limit, entity = self._rates.limit_of(ip)
        return f"more than {limit:g} connections a second (connection_creation_rate of {entity.describe()})"

    def _enforced(self, listener: str, throttle_ms: int) -> int:
        if throttle_ms > 0:
            self._stats.ip_throttles.setdefault(listener, ThrottleTotals()).note(throttle_ms)
        return throttle_ms if self._enforces else 0

    def _note(
        self,
        listener: str,
        ip: str,
        broker: int | None,
        now_ms: int,
        throttle_ms: int,
        *,
        exempt: bool = False,
        attempts: int = 1,
    ) -> None:
        if self._addresses is not None:
            limit, entity = (None, None) if exempt else self._rates.limit_of(ip)
            self._addresses.count(
                listener, ip, broker, now_ms, limit, entity, throttle_ms=throttle_ms, exempt=exempt, attempts=attempts
            )

    def close(self) -> None:
        """Close all held connections."""
        for close in list(self._held):
            self._close(close)

    def tidy(self, now_ms: int) -> None:
        """Drop idle rates and, in shadow, count the waits until now."""
        self._rates.expire(now_ms)
        for listener, simulated in self._simulated.items():
            for wait_ms in simulated.settle(now_ms):
                self._note_wait(listener, wait_ms)

    def usage(self) -> list[AcceptRate]:
        """Return the current rates of the proxy and its listeners; none while rates are not counted."""
        return self._rates.usage(self.clock()) if self._counts else []

    def usage_of_addresses(self) -> Iterator[IpRate]:
        """Yield the current rates of addresses with a limit."""
        return self._rates.usage_of_addresses(self.clock())

    def held(self) -> list[tuple[str, int | None, int]]:
        """Return the address, the broker and the end of each held connection."""
        return [(ip, broker, alarm.end_ms) for ip, broker, alarm in self._held.values()]

    def _close(self, close: Callable[[], None]) -> None:
        _, _, alarm = self._held.pop(close)
        alarm.cancel()
        close()

    def _imagine(self, listener: str, now_ms: int) -> None:
        simulated = self._simulated.get(listener)
        if simulated is None:
            simulated = self._simulated[listener] = SimulatedAcceptor(self._rates, listener)
        for wait_ms in simulated.arrive(now_ms):
            self._note_wait(listener, wait_ms)

    def _note_wait(self, listener: str, wait_ms: int) -> None:
        throttles = self._stats.accept_throttles.setdefault(listener, ThrottleTotals())
        if not throttles.number:
            log.info("first wait of accepting: connection_rate", listener=listener, wait_ms=wait_ms, mode=self._mode)
        throttles.note(wait_ms)
        if self._addresses is not None:
            self._addresses.count_wait(listener, wait_ms)
