"""The proxy's ports for brokers, bound and advertised, and the check that no port is claimed twice."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from config.problems import InvalidValue, InvalidValues
from config.units import EVERY_INTERFACE, MAX_PORT, Address, parse_range

MAX_NODE_ID: Final = 2**31 - 1


_BIND: Final = "bind"
_ADVERTISE: Final = "advertise"
_ONE_PORT: Final = "give each its own; one port for all brokers takes TLS and broker_host"


@dataclass(frozen=True, slots=True)
class BrokerRange:
    """Node ids, the ports bound for them, and the ports advertised to clients: three ranges of the same length."""

    node_ids: range
    bound: range
    advertised: range


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The ports of all brokers of a listener."""

    ranges: tuple[BrokerRange, ...]

    def bound(self, node_id: int) -> int | None:
        """Return the port bound for the broker, None if no range has its id."""
        return next(
            (each.bound[node_id - each.node_ids.start] for each in self.ranges if node_id in each.node_ids), None
        )

    def advertised(self, node_id: int) -> int | None:
        """Return the port advertised for the broker, None if no range has its id."""
        return next(
            (each.advertised[node_id - each.node_ids.start] for each in self.ranges if node_id in each.node_ids), None
        )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of each broker at one listener of one instance: a port for each, or a host name for each."""

    host: str
    """With ``{node_id}`` if ``ports`` is None."""
    port: int | None
    ports: BrokerPorts | None

    def advertised(self, node_id: int) -> Address | None:
        """Return the address of a broker; None if it has no port here."""
        port = self.port if self.ports is None else self.ports.advertised(node_id)
        return None if port is None else Address(self.host.replace("{node_id}", str(node_id)), port)


def parse_broker_ports(written: Mapping[str, object]) -> BrokerPorts:
    """Parse ``{"0-9": "9100-9109", "42": {bind: "9142", advertise: "31142"}}``.

    Raises InvalidValues with every wrong range.
    """
    ranges: list[BrokerRange] = []
    wrong = InvalidValues()
    for key, value in written.items():
        with wrong.at(key):
            ids = _range_within(key, 0, MAX_NODE_ID, "node id")
            found = _broker_range(wrong, key, ids, value)
            if found is not None:
                ranges.append(found)
    if not ranges and not wrong.found:
        raise InvalidValue("names no broker", 'write "0-9": "9100-9109"')
    wrong.raise_if_any()
    _require_all_apart(wrong, written, ranges)
    wrong.raise_if_any()
    return BrokerPorts(tuple(ranges))


def _broker_range(wrong: InvalidValues, key: str, ids: range, value: object) -> BrokerRange | None:
    """Parse one entry; None if one of its two ranges is wrong, which is then added to ``wrong``."""
    if not isinstance(value, Mapping):
        ports = _ports(ids, value)
        return BrokerRange(ids, ports, ports)
    wrong.require_known((key,), value, (_BIND, _ADVERTISE))
    found: dict[str, range] = {}
    for name in (_BIND, _ADVERTISE):
        with wrong.at(key, *([name] if name in value else [])):
            if name not in value:
                raise InvalidValue(
                    f"{name} is missing", 'write both, as in {bind: "9100-9102", advertise: "31100-31102"}'
                )
            found[name] = _ports(ids, value[name])
    return BrokerRange(ids, found[_BIND], found[_ADVERTISE]) if len(found) == 2 else None


def _ports(ids: range, written: object) -> range:
    """Parse a range of as many ports as ``ids``."""
    if isinstance(written, str) and ":" in written:
        fix = f"write the ports alone, as in {written.rpartition(':')[2] or '9100-9102'}: the host is that of advertise"
        raise InvalidValue(f"{written!r} is not a range of ports", fix)
    ports = _range_within(written, 1, MAX_PORT, "port")
    if len(ids) != len(ports):
        last = ports.start + len(ids) - 1
        message = f"{len(ids)} node ids need {len(ids)} ports, not {len(ports)}"
        raise InvalidValue(message, f"write {ports.start}-{last}" if last <= MAX_PORT else "use as many of both")
    return ports


def _require_all_apart(wrong: InvalidValues, written: Mapping[str, object], ranges: list[BrokerRange]) -> None:
    """Require that no node id occurs twice, and no port is bound, or advertised, for two brokers."""
    for index, (key, each) in enumerate(zip(written, ranges, strict=True)):
        apart = isinstance(written[key], Mapping)
        for earlier in ranges[:index]:
            with wrong.at(key):
                require_apart("node id", each.node_ids, earlier.node_ids, "another range")
            with wrong.at(key, *([_BIND] if apart else [])):
                require_apart("port", each.bound, earlier.bound, "another range")
            if each.advertised != each.bound or earlier.advertised != earlier.bound:
                with wrong.at(key, *([_ADVERTISE] if apart else [])):
                    require_apart("port", each.advertised, earlier.advertised, "another advertised range", _ONE_PORT)


def node_id_of(host: str, template: str) -> int | None:
    """Return the node id in ``host``, None if it does not match ``template`` (``b{node_id}.example.com``)."""
    before, after = template.lower().split("{node_id}")
    match = re.fullmatch(rf"{re.escape(before)}(0|[1-9][0-9]{{0,9}}){re.escape(after)}", host.lower())
    return int(match[1]) if match is not None and int(match[1]) <= MAX_NODE_ID else None


@dataclass(frozen=True, slots=True)
class PortClaim:
    """Ports that a component listens on; ``owner`` names it in messages, ``steps`` is its place in the file."""

    host: str
    ports: range
    owner: str
    steps: tuple[str | int, ...]

    @classmethod
    def of(cls, address: Address, owner: str, *steps: str | int) -> "PortClaim":
        return cls(address.host, range(address.port, address.port + 1), owner, steps)


def find_claimed_twice(claims: Iterable[PortClaim], wrong: InvalidValues) -> None:
    """Add to ``wrong`` each claim that overlaps an earlier one on the same interface."""
    earlier: list[PortClaim] = []
    for claim in claims:
        with wrong.at(*claim.steps):
            for other in earlier:
                if claim.host == other.host or EVERY_INTERFACE & {claim.host, other.host}:
                    require_apart("port", claim.ports, other.ports, other.owner)
        earlier.append(claim)


def _range_within(text: object, least: int, most: int, what: str) -> range:
    if not isinstance(text, str):
        raise InvalidValue(f"must be a range of {what}s", 'write "9100-9109" or a single number')
    values = parse_range(text)
    if values.start < least or values[-1] > most:
        raise InvalidValue(f"{text!r} is out of range", f"a {what} is from {least} to {most}")
    return values


def require_apart(what: str, values: range, taken: range, owner: str, fix: str = "give each its own") -> None:
    shared = max(values.start, taken.start)
    if shared < min(values.stop, taken.stop):
        raise InvalidValue(f"{what} {shared} already belongs to {owner}", fix)
