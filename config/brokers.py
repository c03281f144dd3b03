"""Which port or host of the proxy stands for which broker, and that no port is claimed twice."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from config.problems import InvalidValue, InvalidValues
from config.units import EVERY_INTERFACE, MAX_PORT, Address, parse_range

MAX_NODE_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Ranges of node ids, each with a range of ports of the same length."""

    ranges: tuple[tuple[range, range], ...]

    def port_of(self, node_id: int) -> int | None:
        """Return the port that stands for the broker, None if no range holds its id."""
        for ids, ports in self.ranges:
            if node_id in ids:
                return ports[node_id - ids.start]
        return None

    def ports(self) -> Iterator[range]:
        """Every range of ports, in the order of the file."""
        return (ports for _, ports in self.ranges)


def parse_broker_ports(written: Mapping[str, object]) -> BrokerPorts:
    """Return what ``{"0-9": "9100-9109", "42": "9142"}`` says; raise InvalidValues with every wrong pair."""
    ranges: list[tuple[range, range]] = []
    wrong = InvalidValues()
    for key, value in written.items():
        with wrong.at(key):
            ids = _range_within(key, 0, MAX_NODE_ID, "node id")
            ports = _range_within(value, 1, MAX_PORT, "port")
            if len(ids) != len(ports):
                last = ports.start + len(ids) - 1
                message = f"{len(ids)} node ids stand for {len(ports)} ports"
                raise InvalidValue(
                    message, f"write {ports.start}-{last}" if last <= MAX_PORT else "use as many of both"
                )
            for earlier_ids, earlier_ports in ranges:
                _require_apart("node id", ids, earlier_ids, "another range")
                _require_apart("port", ports, earlier_ports, "another range")
            ranges.append((ids, ports))
    if not ranges and not wrong.found:
        raise InvalidValue("names no broker", 'write "0-9": "9100-9109"')
    wrong.raise_if_any()
    return BrokerPorts(tuple(ranges))


def node_id_of(host: str, template: str) -> int | None:
    """Return which broker ``host`` stands for, None if it does not fit ``template`` (``b{node_id}.example.com``)."""
    before, after = template.lower().split("{node_id}")
    match = re.fullmatch(rf"{re.escape(before)}(0|[1-9][0-9]{{0,9}}){re.escape(after)}", host.lower())
    return int(match[1]) if match is not None and int(match[1]) <= MAX_NODE_ID else None


@dataclass(frozen=True, slots=True)
class PortClaim:
    """Ports that something listens on; ``owner`` names it in messages, ``steps`` is where the file says so."""

    host: str
    ports: range
    owner: str
    steps: tuple[str | int, ...]

    @classmethod
    def of(cls, address: Address, owner: str, *steps: str | int) -> "PortClaim":
        return cls(address.host, range(address.port, address.port + 1), owner, steps)


def find_claimed_twice(claims: Iterable[PortClaim], wrong: InvalidValues) -> None:
    """Add to ``wrong`` each claim that meets an earlier one on the same interface."""
    earlier: list[PortClaim] = []
    for claim in claims:
        with wrong.at(*claim.steps):
            for other in earlier:
                if claim.host == other.host or EVERY_INTERFACE & {claim.host, other.host}:
                    _require_apart("port", claim.ports, other.ports, other.owner)
        earlier.append(claim)


def _range_within(text: object, least: int, most: int, what: str) -> range:
    if not isinstance(text, str):
        raise InvalidValue(f"must be a range of {what}s", 'write "9100-9109" or a single number')
    values = parse_range(text)
    if values.start < least or values[-1] > most:
        raise InvalidValue(f"{text!r} is out of range", f"a {what} is from {least} to {most}")
    return values


def _require_apart(what: str, values: range, taken: range, owner: str) -> None:
    shared = max(values.start, taken.start)
    if shared < min(values.stop, taken.stop):
        raise InvalidValue(f"{what} {shared} belongs to {owner} already", "give each its own")
