"""Addresses of clients in one spelling, and the network that a stranger is of: an IPv4 address, or an IPv6 /64.

Providers give a /64 to one customer, who can connect from any of its 2^64 addresses. Wherever clients are counted by
where they come from, they are counted by this.
"""

from ipaddress import IPv6Address, ip_address

_HOST_BITS = 64


def canonical_ip(text: str) -> str:
    """Return the canonical spelling of an address; an IPv4-mapped one becomes the IPv4 address, as in a Java broker. A
    scope (``fe80::1%eth0``) is dropped.

    Raises ValueError for anything else.
    """
    address = ip_address(text.partition("%")[0] if ":" in text else text)
    return str(getattr(address, "ipv4_mapped", None) or address)


def network_of(host: str) -> str:
    """Return the network of an address; of an IPv4-mapped one, that IPv4 address. Anything else is its own network."""
    if ":" not in host:
        return host
    try:
        address = canonical_ip(host)
    except ValueError:
        return host
    return f"{IPv6Address(int(IPv6Address(address)) >> _HOST_BITS << _HOST_BITS)}/64" if ":" in address else address


def network_of_peer(peer: str) -> str:
    """Return the network of ``host:port``."""
    return network_of(peer.rpartition(":")[0].strip("[]"))
