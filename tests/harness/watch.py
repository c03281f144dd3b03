"""ConnectionWatch: proof that no client connects to a broker's own address.

The brokers' guarded listeners advertise addresses at which this stands. It accepts every connection, looks up which
process holds the other end, relays the proxy's to the broker, and records and resets everyone else's. A connection
cannot be too short to be seen, because the kernel completes none without this `accept`.

What it sees: every connection to an address that the brokers told. What it does not see: a client that connects to an
address it was never told (the direct listeners), and who held a connection that was closed before it could be looked
up: such a one is counted as vanished. A client whose connection is reset tries again, so an escape shows as an Escape.
A broker that is down looks like one that resets its connections, because the watch goes on listening for it.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import psutil

from tests.harness.broker import Endpoint, Node
from tests.harness.listening import stop_listening
from tests.harness.wire import Address

CHUNK_BYTES: Final = 1 << 18
STOP_TIMEOUT_S: Final = 60.0  # on a busy machine
SETTLING_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Escape:
    """A process that is not the proxy connected to the address of a broker."""

    node_id: int
    pid: int
    command: str


class ConnectionWatch:
    """Guards the nodes from its start to its end, as a context manager.

    `proxy_pid` is asked at every connection, so that the watch can stand before the proxy starts.
    """

    def __init__(self, nodes: Sequence[Node], proxy_pid: Callable[[], int]) -> None:
        self.escapes: list[Escape] = []
        self.admitted: Counter[int] = Counter()
        """Connections by the process that made them: the proxy, whenever it likes, or one that it started."""
        self.vanished = 0
        self._nodes = list(nodes)
        self._proxy_pid = proxy_pid
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="connection-watch", daemon=True)
        self._relays: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._servers: list[asyncio.Server] = []

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(STOP_TIMEOUT_S)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()

    async def _open(self) -> None:
        for node in self._nodes:
            for endpoint in node.endpoints.values():
                at = endpoint.guarded
                server = await asyncio.start_server(self._acceptor(node, endpoint), at.host, at.port)
                self._servers.append(server)

    async def _close(self) -> None:
        for server in self._servers:
            await stop_listening(server)
        while self._relays:
            for relay, writer in self._relays.items():
                relay.cancel()
                writer.transport.abort()  # also of a relay that has not begun yet
            await asyncio.gather(*self._relays, return_exceptions=True)
            await asyncio.sleep(SETTLING_S)  # the last transports close

    def _acceptor(self, node: Node, endpoint: Endpoint) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            relay = self._loop.create_task(self._relay(node, endpoint, reader, writer))
            self._relays[relay] = writer
            relay.add_done_callback(self._relays.pop)

        return accept

    async def _relay(
        self, node: Node, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if self._admits(node, writer.get_extra_info("peername")):
                await self._relay_admitted(endpoint.guarded_listener, reader, writer)
            else:
                _reset(writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()  # with bytes that nobody takes it stays open, for `_close` to see

    async def _relay_admitted(
        self, broker: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(broker.host, broker.port)
        except OSError:
            _reset(writer)
            return
        requests = self._loop.create_task(_pump(reader, broker_writer))
        try:
            await _pump(broker_reader, writer)
        finally:
            requests.cancel()
            broker_writer.transport.abort()

    def _admits(self, node: Node, peer: tuple[str, int]) -> bool:
        pid = self._of_the_proxy(peer)
        if pid is not None:
            self.admitted[pid] += 1
            return True
        for connection in psutil.net_connections("tcp"):
            if connection.laddr == peer and connection.pid is not None:
                self.escapes.append(Escape(node.node_id, connection.pid, _command(connection.pid)))
                return False
        self.vanished += 1
        return False

    def _of_the_proxy(self, peer: tuple[str, int]) -> int | None:
        """Return which process of the proxy's has ``peer`` for its own end."""
        try:
            proxy = psutil.Process(self._proxy_pid())
            for process in (proxy, *proxy.children(recursive=True)):
                if any(each.laddr == peer for each in process.net_connections("tcp")):
                    return int(process.pid)
        except psutil.NoSuchProcess:  # it has ended meanwhile
            pass
        return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay one direction to its end, and its end too; a reset ends it as well."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return "(ended)"
