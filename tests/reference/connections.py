"""A broker's accept path under connection rate limits (ConnectionQuotas and Acceptor, KIP-612)."""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from quotas.rate import Rate, Window

UNLIMITED = 2**31 - 1
"""Int.MaxValue; for an IP exactly this value means that nothing is even recorded."""


@dataclass(frozen=True, slots=True)
class Accepted:
    wait_ms: int
    at: int


@dataclass(frozen=True, slots=True)
class IpThrottled:
    """Held unread until ``close_at``, then closed; never served."""

    wait_ms: int
    at: int
    ip_throttle_ms: int
    close_at: int


class ConnectionQuotas:
    """Rates are per broker, per listener and per IP; every throttle is capped at one window."""

    def __init__(
        self,
        window: Window,
        listeners: list[str],
        inter_broker: str | None,
        broker_rate: float | None,
        listener_rates: dict[str, float],
    ) -> None:
        self._window = window
        self._protected = inter_broker if len(listeners) > 1 else None
        self._broker = self._sensor(broker_rate)
        self._listeners = {name: self._sensor(listener_rates.get(name)) for name in listeners}
        self._ips: dict[str, Rate] = {}
        self._ip_limits: dict[str, float] = {}
        self._default_ip_limit: float | None = None

    def accept(self, listener: str, ip: str, now_ms: int) -> Accepted | IpThrottled:
        protected = listener == self._protected
        broker_ms = 0 if protected else _charge(self._broker, now_ms)
        wait_ms = max(broker_ms, _charge(self._listeners[listener], now_ms))
        at = now_ms + wait_ms
        ip_ms = self._charge_ip(canonical(ip), at)
        if ip_ms <= 0:
            return Accepted(wait_ms, at)
        self._ips[canonical(ip)].record(-1, at)
        self._listeners[listener].record(-1, at)
        if not protected:
            self._broker.record(-1, at)
        return IpThrottled(wait_ms, at, ip_ms, at + ip_ms)

    def set_broker_rate(self, limit: float | None) -> None:
        self._broker.set_limit(UNLIMITED if limit is None else limit)

    def set_listener_rate(self, listener: str, limit: float | None) -> None:
        self._listeners[listener].set_limit(UNLIMITED if limit is None else limit)

    def set_ip_rate(self, ip: str | None, limit: float | None) -> None:
        """Set or remove the limit of one address, or of the default IP; sensors that exist follow at once."""
        if ip is None:
            self._default_ip_limit = limit
        elif limit is None:
            self._ip_limits.pop(canonical(ip), None)
        else:
            self._ip_limits[canonical(ip)] = limit
        for address, sensor in self._ips.items():
            sensor.set_limit(self._ip_limit(address))

    def rate(self, name: str, now_ms: int) -> float:
        """Measure the sensor of ``broker``, a listener or an IP; 0.0 for one never used."""
        sensor = self._broker if name == "broker" else self._listeners.get(name) or self._ips.get(canonical(name))
        if sensor is None:
            return 0.0
        sensor.purge(now_ms)
        return sensor.rate(now_ms)

    def _sensor(self, limit: float | None) -> Rate:
        return Rate(self._window, UNLIMITED if limit is None else limit, cap_ms=self._window.size_ms)

    def _ip_limit(self, address: str) -> float:
        default = UNLIMITED if self._default_ip_limit is None else self._default_ip_limit
        return self._ip_limits.get(address, default)

    def _charge_ip(self, address: str, now_ms: int) -> int:
        limit = self._ip_limit(address)
        if limit == UNLIMITED:
            return 0
        return _charge(self._ips.setdefault(address, self._sensor(limit)), now_ms)


def _charge(sensor: Rate, now_ms: int) -> int:
    # Not Rate.charge: an acceptor that slept charges at a time that another listener may still be behind.
    sensor.record(1, now_ms)
    return sensor.check(now_ms)


def canonical(ip: str) -> str:
    """Return the address that is counted: an IPv4-mapped IPv6 address is the IPv4 address."""
    try:
        address = ip_address(ip)
    except ValueError:
        return ip
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
