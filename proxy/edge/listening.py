"""Listening sockets: bound by the process that owns the ports, and handed to acceptors."""

import errno
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from config.settings import Listener as ListenerSettings
from config.units import Address
from proxy.brokers.failures import describe
from proxy.edge.kernel import prepare_listening

Bind = Callable[[str, int], list[socket.socket]]
"""(host, port) → listening sockets, owned by the caller. Does not block. Raises OSError."""

_BACKLOG: Final = 1024
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bind(host: str, port: int, send_buffer_bytes: int = -1, given: Sequence[socket.socket] = ()) -> list[socket.socket]:
    """Listen on every address of ``host``, or with those of the ``given`` sockets that have such an address.

    Does not block. Raises OSError.
    """
    names = _names(host, [port]) if given else ()
    if taken := [_take(each, send_buffer_bytes) for each in given if each.getsockname()[:2] in names]:
        return taken
    failure: OSError | None = None
    bound: list[socket.socket] = []
    for family, kind, protocol, _, where in socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        try:
            bound.append(_bind(family, kind, protocol, where, send_buffer_bytes))
        except OSError as error:
            if error.errno not in _NO_SUCH_FAMILY:
                for each in bound:
                    each.close()
                raise
            failure = error  # the name has an IPv6 address too, and the machine has no IPv6
    if failure is not None and not bound:
        raise failure
    return bound


def bind_bootstrap(listener: ListenerSettings, bind: Bind) -> list[socket.socket]:
    """Listen on a listener's bootstrap address. Raises OSError that names the listener and the address."""
    try:
        return bind(listener.bind.host, listener.bind.port)
    except OSError as error:
        raise OSError(f"listener {listener.name}: cannot bind {listener.bind}: {describe(error)}") from error


def unused(given: Iterable[socket.socket], listeners: Sequence[ListenerSettings]) -> Iterator[str]:
    """Return the addresses of ``given`` sockets at which no listener may listen."""
    names: set[object] = set()
    for each in listeners:
        ports = [port for found in each.brokers.ranges for port in found.bound] if each.brokers is not None else []
        names |= _names(each.bind.host, [each.bind.port, *ports])
    for name in (each.getsockname() for each in given):
        if name[:2] not in names:
            yield str(Address(*name[:2])) if isinstance(name, tuple) else name


def _names(host: str, ports: Iterable[int]) -> set[object]:
    """Return (address, port) for each address of ``host``."""
    found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {(where[0], port) for *_, where in found for port in ports}


def _take(given: socket.socket, send_buffer_bytes: int) -> socket.socket:
    """Return a descriptor of our own: the given one stays open, and connections queue there while nobody listens."""
    if given.getsockname()[0] == "::" and not given.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
        raise OSError("the socket of systemd takes IPv4 too: write BindIPv6Only=ipv6-only, and 0.0.0.0 as well as [::]")
    taken = given.dup()
    prepare_listening(taken, send_buffer_bytes)
    taken.listen(_BACKLOG)
    taken.setblocking(False)
    return taken


def _bind(family: int, kind: int, protocol: int, where: tuple[object, ...], send_buffer_bytes: int) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        prepare_listening(bound, send_buffer_bytes)
        bound.bind(where)
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
