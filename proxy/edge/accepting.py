"""Listening sockets: connections are taken as they come and handed on at once.

asyncio's own servers are not used, for three reasons: a PROXY header has to be read before TLS begins, the SSLContext
has to be another after a certificate was replaced, and out of descriptors uvloop's accepts and closes without a word,
asyncio's in a busy loop. What that costs, and why there is no second way for plaintext: docs/decisions/0013.
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
"""Connections taken in one turn of the loop: a storm of them must not stop everybody else's traffic. Each takes some
60 µs where it is refused, uncompiled."""
_PAUSE_S = 1.0

Take = Callable[[socket.socket, Address, int | None], None]
"""(socket, address of its peer, node id it was accepted for): owns the socket from then on."""


class Acceptor:
    """Accepts for one listener. ``on_failure`` is called whenever it could not, as for want of descriptors.

    ``delay_ms`` is asked about each connection that was accepted. One that has to wait is handed on after that, and
    until then all others stay in the backlog, at whichever port of the listener they came (Kafka's Acceptor, KIP-612).
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
        self._left_alone: dict[socket.socket, int | None] = {}
        """Sockets that were found readable while a connection is delayed, with their node ids: watched again then."""
        self._failing = False
        self.open = True

    def listen(self, sockets: Iterable[socket.socket], node_id: int | None) -> None:
        """Accept from sockets that listen, and own them from now on."""
        for listening in sockets:
            self._listening.add(listening)
            self._watch(listening, node_id)

    def stop_listening(self, sockets: Iterable[socket.socket]) -> None:
        """Take no further connection from these sockets."""
        loop = asyncio.get_running_loop()
        for listening in sockets:
            self._listening.discard(listening)
            self._left_alone.pop(listening, None)
            loop.remove_reader(listening)
            listening.close()

    def close(self) -> None:
        """Take no further connection."""
        self.open = False
        self.stop_listening(list(self._listening))
        if self._delayed is not None:
            self._delayed.close()

    def _watch(self, listening: socket.socket, node_id: int | None) -> None:
        if self._delayed is not None:
            self._left_alone[listening] = node_id
        elif listening in self._listening:
            on_readable(listening, "accept", self._accept, listening, node_id)

    def _accept(self, listening: socket.socket, node_id: int | None) -> None:
        for _ in range(_BATCH):
            if self._delayed is not None:
                asyncio.get_running_loop().remove_reader(listening)
                self._left_alone[listening] = node_id
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
        """Hand on the connection that was delayed, and accept again."""
        if not self.open:
            return
        self._delayed = None
        contained("take a connection", self._hand_on, client, peer, node_id, otherwise=client.close)
        waiting, self._left_alone = self._left_alone, {}
        for listening, of_node in waiting.items():
            self._watch(listening, of_node)

    def _hand_on(self, client: socket.socket, peer: tuple[str, int], node_id: int | None) -> None:
        self._take(client, address(peer[0], peer[1]), node_id)

    def _pause(self, listening: socket.socket, node_id: int | None, error: OSError) -> None:
        """Look again in a while: the connection stays where it is, in the backlog."""
        self._on_failure()
        if not self._failing:
            log.error("cannot accept connections, trying again", listener=self._name, error=str(error))
        self._failing = True
        asyncio.get_running_loop().remove_reader(listening)
        self._watch_later(listening, node_id)

    def _watch_later(self, listening: socket.socket, node_id: int | None) -> None:
        once_more = partial(self._watch_later, listening, node_id)
        later(_PAUSE_S, "accept again", self._watch, listening, node_id, otherwise=once_more)
