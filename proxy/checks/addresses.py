"""Advertised and bound addresses, printed by ``sluice check`` where they differ."""

from collections.abc import Iterable
from typing import Final

from config.settings import Listener
from config.units import Address

_SHORTEST_PORT: Final = 3


def reads_as_port(listener: Listener) -> str | None:
    """Return the probable spelling if an unbracketed IPv6 address may have been meant to end in a port."""
    host, _, last = listener.advertise.host.rpartition(":")
    if listener.advertise.port is not None or not host or not last.isdecimal() or len(last) < _SHORTEST_PORT:
        return None
    return f"[{host}]:{last}"


def looks_unfinished(listener: Listener) -> str | None:
    """Return what is odd about an advertised IPv6 address that no client can reach."""
    host = listener.advertise.host
    if "%" in host:
        return f"{host} has a zone, which is this machine's own: no other machine can use it"
    return f"{host} ends in ::, as a network does" if host.endswith("::") else None


def told_and_bound(listeners: Iterable[Listener]) -> list[str]:
    """Return a line for each address that clients reach at another port than the bound one."""
    return [line for listener in listeners for line in _of(listener)]


def _of(listener: Listener) -> list[str]:
    found = [("bootstrap.servers", _one(listener.bootstrap), _one(listener.bind))]
    if listener.broker_host is not None:
        every = Address(listener.broker_host, listener.bootstrap.port)
        found.append(("every broker", _one(every), _one(listener.bind)))
    for each in listener.brokers.ranges if listener.brokers is not None else ():
        brokers = f"broker{'s' if len(each.node_ids) > 1 else ''} {_span(each.node_ids)}"
        found.append((brokers, (listener.advertise.host, each.advertised), (listener.bind.host, each.bound)))
    return [
        f"listener {listener.name}: {what} {_at(*told)}, bound at {_at(*bound)}"
        for what, told, bound in found
        if told[1] != bound[1]
    ]


def _one(address: Address) -> tuple[str, range]:
    return address.host, range(address.port, address.port + 1)


def _at(host: str, ports: range) -> str:
    return f"[{host}]:{_span(ports)}" if ":" in host else f"{host}:{_span(ports)}"


def _span(numbers: range) -> str:
    return str(numbers.start) if len(numbers) == 1 else f"{numbers.start}-{numbers[-1]}"
