"""Listening sockets: bound by the process that owns the ports, and handed to acceptors."""

import errno
import socket
from collections.abc import Callable
from typing import Final

from config.settings import Listener as ListenerSettings
from proxy.brokers.failures import describe
from proxy.edge.kernel import prepare_listening

Bind = Callable[[str, int], list[socket.socket]]
"""(host, port) → listening sockets, owned by the caller. Does not block. Raises OSError."""

_BACKLOG: Final = 1024
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bind(host: str, port: int, send_buffer_bytes: int = -1) -> list[socket.socket]:
    """Listen on every address of ``host``. Does not block. Raises OSError."""
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
