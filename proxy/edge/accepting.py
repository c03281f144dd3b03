"""Accept loops of the listening sockets.

asyncio's own servers are not used, for three reasons: a PROXY header has to be read before TLS begins; a replaced
certificate needs a new SSLContext; and when descriptors run out, uvloop's server accepts and closes silently and
asyncio's spins. docs/decisions/0013 has the cost, and why plaintext takes the same path.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from config.units import Address
from proxy.edge.proxy_protocol import address
from proxy.runtime.faults import contained
from proxy.runtime.tasks import later, on_readable

log = structlog.get_logger("sluice.listener")

_BATCH: Final = 8
"""Connections accepted per turn of the loop, so that a storm of them does not stop other clients' traffic. A refused
connection costs some 60 µs, uncompiled."""
_PAUSE_S = 1.0

Take = Callable[[socket.socket, Address, int | None], None]
"""(socket, address of its peer, node id of the port) → None. The callee owns the socket."""


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
        self._listening: set[socket.socket] = set()
        self._delayed: socket.socket | None = None
        self._left: set[socket.socket] = set()
        """Listening sockets at which another process accepts."""
        self._paused: dict[socket.socket, int | None] = {}
        """Listening sockets → node id, not watched while a connection is delayed."""
        self._failing = False
        self.open = True

    def listen(self, sockets: Iterable[socket.socket], node_id: int | None) -> None:
        """Accept from listening ``sockets``, and own them from now on."""
        for listening in sockets:
            self._listening.add(listening)
            self._left.discard(listening)
            self._watch(listening, node_id)

    def leave(self, sockets: Iterable[socket.socket]) -> None:
        """Own listening ``sockets``, and leave their connections to another process that has them too."""
        for listening in sockets:
            self._listening.add(listening)
            self._left.add(listening)
            self._paused.pop(listening, None)
            asyncio.get_running_loop().remove_reader(listening)

    def stop_listening(self, sockets: Iterable[socket.socket]) -> None:
        """Stop accepting from ``sockets``, and close them."""
        loop = asyncio.get_running_loop()
        for listening in sockets:
            self._listening.discard(listening)
            self._left.discard(listening)
            self._paused.pop(listening, None)
            loop.remove_reader(listening)
            listening.close()

    def close(self) -> None:
        """Stop accepting."""
        self.open = False
        self.stop_listening(list(self._listening))
        if self._delayed is not None:
            self._delayed.close()

    def _watch(self, listening: socket.socket, node_id: int | None) -> None:
        if listening not in self._listening or listening in self._left:
            return
        if self._delayed is not None:
            self._paused[listening] = node_id
        else:
            on_readable(listening, "accept", self._accept, listening, node_id)

    def _accept(self, listening: socket.socket, node_id: int | None) -> None:
        for _ in range(_BATCH):
            if self._delayed is not None:
                asyncio.get_running_loop().remove_reader(listening)
                self._paused[listening] = node_id
                return
            try:
                client, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, node_id, error)
                return
            client.setblocking(False)
            self._failing = False
            contained("take a connection", self._taken, client, peer, node_id, otherwise=client.close)

    def _taken(self, client: socket.socket, peer: tuple[str, int], node_id: int | None) -> None:
        delay_ms = self._delay_ms()
        if delay_ms > 0:
            self._delayed = client
            self._go_on_later(delay_ms / 1000, client, peer, node_id)
        else:
            self._hand_on(client, peer, node_id)

    def _go_on_later(self, delay_s: float, client: socket.socket, peer: tuple[str, int], node_id: int | None) -> None:
        once_more = partial(self._go_on_later, _PAUSE_S, client, peer, node_id)
        later(delay_s, "take a delayed connection", self._go_on, client, peer, node_id, otherwise=once_more)

    def _go_on(self, client: socket.socket, peer: tuple[str, int], node_id: int | None) -> None:
        """Hand on the delayed connection, and accept again."""
        if not self.open:
            return
        self._delayed = None
        contained("take a connection", self._hand_on, client, peer, node_id, otherwise=client.close)
        waiting, self._paused = self._paused, {}
        for listening, of_node in waiting.items():
            self._watch(listening, of_node)

    def _hand_on(self, client: socket.socket, peer: tuple[str, int], node_id: int | None) -> None:
        self._take(client, address(peer[0], peer[1]), node_id)

    def _pause(self, listening: socket.socket, node_id: int | None, error: OSError) -> None:
        """Stop accepting for a second; connections wait in the backlog."""
        self._on_failure()
        if not self._failing:
            log.error("cannot accept connections, trying again", listener=self._name, error=str(error))
        self._failing = True
        asyncio.get_running_loop().remove_reader(listening)
        self._watch_later(listening, node_id)

    def _watch_later(self, listening: socket.socket, node_id: int | None) -> None:
        once_more = partial(self._watch_later, listening, node_id)
        later(_PAUSE_S, "accept again", self._watch, listening, node_id, otherwise=once_more)
