"""The network that a stranger is of: an IPv4 address, or an IPv6 /64.

Providers give a /64 to one customer, who can connect from any of its 2^64 addresses. Wherever clients are counted by
where they come from, they are counted by this.
"""

from ipaddress import IPv6Address

_HOST_BITS = 64


def network_of(host: str) -> str:
    """Return the network of an address; of an IPv4-mapped one, that IPv4 address. What is none is its own network."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS)}/64"


def network_of_peer(peer: str) -> str:
    """Return the network of ``host:port``."""
    return network_of(peer.rpartition(":")[0].strip("[]"))
