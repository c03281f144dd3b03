"""Listening sockets: bound by the process that owns the ports, handed to acceptors, and accepted from.

asyncio's own servers are not used, for three reasons: a PROXY header has to be read before TLS begins; a replaced
certificate needs a new SSLContext; and when descriptors run out, uvloop's server accepts and closes silently and
asyncio's spins. docs/decisions/0013 has the cost, and why plaintext takes the same path.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import structlog

from config.settings import Listener as ListenerSettings
from config.units import Address
from proxy.brokers.failures import describe
from proxy.edge.kernel import accept, prepare_listening
from proxy.runtime.faults import contained
from proxy.runtime.tasks import later, on_readable
from quotas.connections import counted_as

log = structlog.get_logger("sluice.listener")

Bind = Callable[[str, int], list[socket.socket]]
"""(host, port) → listening sockets, owned by the caller. Does not block. Raises OSError."""

Take = Callable[[socket.socket, Address, int | None], None]
"""(socket, address of its peer, node id of the port) → None. The callee owns the socket."""

_BACKLOG: Final = 1024
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_BATCH: Final = 8
"""Connections accepted per turn of the loop, so that a storm of them does not stop other clients' traffic. A refused
connection costs some 60 µs, uncompiled."""
_PAUSE_S = 1.0


class Acceptor:
    """Accepts connections of one listener. ``on_failure`` is called whenever accept fails, for example when descriptors
    run out.

    ``delay_ms`` is asked for each accepted connection. A delayed one is handed on after that time; until then all
    others wait in the backlog, whichever port of the listener they connected to (Kafka's Acceptor, KIP-612).
    """

    def __init__(
        self, name: str, take: Take, on_failure: Callable[[], None], delay_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._name = name
        self._take = take
        self._on_failure = on_failure
        self._delay_ms = delay_ms
        self._sockets: dict[socket.socket, int | None] = {}
        """Listening sockets at which connections are accepted → node id."""
        self._left: set[socket.socket] = set()
        """Listening sockets at which another process accepts."""
        self._delayed: tuple[socket.socket, Address, int | None] | None = None
        self._is_paused = False
        """No socket is watched."""
        self._failing = False
        self.open = True

    def listen(self, sockets: Iterable[socket.socket], node_id: int | None) -> None:
        """Accept from listening ``sockets``, and own them from now on."""
        for listening in sockets:
            self._left.discard(listening)
            self._sockets[listening] = node_id
            self._watch(listening)

    def leave(self, sockets: Iterable[socket.socket]) -> None:
        """Own listening ``sockets``, and leave their connections to another process that has them too."""
        for listening in sockets:
            self._left.add(listening)
            self._sockets.pop(listening, None)
            asyncio.get_running_loop().remove_reader(listening)

    def stop_listening(self, sockets: Iterable[socket.socket]) -> None:
        for listening in sockets:
            self.leave([listening])
            self._left.discard(listening)
            listening.close()

    def close(self) -> None:
        self.open = False
        self.stop_listening([*self._sockets, *self._left])
        if self._delayed is not None:
            self._delayed[0].close()
            self._delayed = None

    def _watch(self, listening: socket.socket) -> None:
        if not self._is_paused:
            on_readable(listening, "accept", self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        node_id = self._sockets[listening]
        for _ in range(_BATCH):
            try:
                client, peer = accept(listening)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # descriptors have run out, for all sockets
                self._on_failure()
                if not self._failing:
                    log.error("cannot accept connections, trying again", listener=self._name, error=str(error))
                self._failing = True
                self._pause(_PAUSE_S)
                return
            self._failing = False
            contained("take a connection", self._accepted, client, peer, node_id, otherwise=client.close)
            if self._is_paused:
                return

    def _accepted(self, client: socket.socket, peer: tuple[str, int], node_id: int | None) -> None:
        address, delay_ms = Address(counted_as(peer[0]), peer[1]), self._delay_ms()
        if delay_ms > 0:
            self._delayed = client, address, node_id
            self._pause(delay_ms / 1000)
        else:
            self._take(client, address, node_id)

    def _pause(self, for_s: float) -> None:
        """Accept nothing for so long: connections wait in the backlog."""
        self._is_paused = True
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
        later(for_s, "accept again", self._go_on, otherwise=partial(self._pause, _PAUSE_S))

    def _go_on(self) -> None:
        """Hand on the connection that is delayed, if one is, and accept again."""
        self._is_paused = False
        delayed, self._delayed = self._delayed, None
        if delayed is not None:
            contained("take a connection", self._take, *delayed, otherwise=delayed[0].close)
        for listening in self._sockets:
            self._watch(listening)


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
