"""A stand-in for a broker on a real socket: it answers Metadata with what it was told, and echoes the rest."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from struct import pack, unpack_from
from typing import TypeVar

from proxy.brokers import verification
from proxy.brokers.connection import BrokerConnection, open_connection
from tests.proxy.playbook import frame

_serving: "list[FakeBroker]" = []
_looks: list[tuple[int, BrokerConnection]] = []


async def _open_connection(host: str, port: int, context: ssl.SSLContext | None) -> BrokerConnection:
    connection = await open_connection(host, port, context)
    _looks.append((port, connection))
    return connection


verification.open_connection = _open_connection  # type: ignore[assignment,attr-defined]  # each stands until its process ends


async def end_looks(port: int) -> None:
    """Close the proxy's standing connections to a stand-in that ends with its test."""
    for each in [each for each in _looks if each[0] == port]:
        _looks.remove(each)
        each[1].abort()
    for _ in range(3):
        await asyncio.sleep(0)


class FakeBroker:
    """``brokers``: node id → (host, port) that Metadata names; while empty, those of the stand-in that names this one.
    Any other request is answered with four zero bytes. ``requests`` and ``connections`` are those of clients.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self.by_client: dict[str, dict[int, tuple[str, int]]] = {}
        """By client-id: what that client is told instead."""
        self.cluster_id = "of-the-test"
        self.port = 0
        self.requests: list[bytes] = []
        self.asked: list[bytes] = []
        """The proxy's own requests."""
        self.connections: list[asyncio.StreamWriter] = []
        self.watching: list[asyncio.StreamWriter] = []
        """The proxy's own connections."""
        self.of: dict[int, int] = {}
        self.silent = False
        self.padding = 0
        """Bytes behind the four zeros."""
        self.answers_produce = True
        """False: as if all had acks=0."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                payload = await reader.readexactly(size)
                if client_id_of(payload) == "sluice":
                    self.asked.append(payload)
                    if writer in self.connections and not self.requests_of(writer):
                        self.connections.remove(writer)
                        self.watching.append(writer)
                else:
                    self.of[id(writer)] = self.of.get(id(writer), 0) + 1
                    self.requests.append(payload)
                answer = self._answer(payload)
                if answer is None:
                    break
                if not self.silent:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, payload: bytes) -> bytes | None:
        """Return the answer to a request, of which the size is missing; None ends the connection."""
        api_key, version, correlation_id = unpack_from(">hhi", payload)
        if api_key == 0 and not self.answers_produce:
            return b""
        if api_key == 18 and version > 4:  # ApiVersions v5, of 4.4
            return frame(pack(">ihi", correlation_id, 35, 0))
        if api_key == 3:
            return frame(pack(">i", correlation_id) + self._metadata(version, client_id_of(payload)))
        return frame(pack(">i", correlation_id) + bytes(4 + (0 if client_id_of(payload) == "sluice" else self.padding)))

    def _metadata(self, version: int, client_id: str) -> bytes:
        brokers = self.by_client.get(client_id) or self.brokers
        if not brokers:
            naming = [each for each in _serving if any(port == self.port for _, port in each.brokers.values())]
            brokers = naming[0].brokers if naming else {}
        return metadata(version, brokers, self.cluster_id)

    def requests_of(self, writer: asyncio.StreamWriter) -> int:
        return self.of.get(id(writer), 0)

    def drop(self) -> list[asyncio.StreamWriter]:
        """End every connection, as a broker that goes down; return what they were."""
        ended, self.connections, self.watching = [*self.connections, *self.watching], [], []
        for writer in ended:
            writer.close()
        return ended

    def reset(self) -> None:
        """Reset every connection: what was still to be sent is lost."""
        for writer in self.connections:
            if writer.is_closing():
                continue
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            writer.transport.abort()
        self.connections.clear()


def client_id_of(payload: bytes) -> str:
    length = max(unpack_from(">h", payload, 8)[0], 0)
    return payload[10 : 10 + length].decode("utf-8", "replace")


def metadata(version: int, brokers: Mapping[int, tuple[str, int]], cluster_id: str) -> bytes:
    """Return the body of an answer to Metadata v1 or v2 that names ``brokers``, and no topic."""
    nodes = b"".join(
        pack(">ih", node_id, len(host)) + host.encode() + pack(">ih", port, -1)
        for node_id, (host, port) in brokers.items()
    )
    of_cluster = pack(">h", len(cluster_id)) + cluster_id.encode() if version > 1 else b""
    return pack(">i", len(brokers)) + nodes + of_cluster + pack(">ii", 1, 0)


B = TypeVar("B", bound=FakeBroker)


def fake_broker(port: int = 0) -> AbstractAsyncContextManager[FakeBroker]:
    return serving(FakeBroker(), port)


@asynccontextmanager
async def serving(broker: B, port: int = 0) -> AsyncIterator[B]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    broker.port = server.sockets[0].getsockname()[1]
    _serving.append(broker)
    try:
        yield broker
    finally:
        _serving[:] = [each for each in _serving if each is not broker]
        await end_looks(broker.port)
        server.close()
        for _ in range(5):  # who was accepted a moment ago comes to be served
            await asyncio.sleep(0)
        ended = broker.drop()
        await server.wait_closed()
        await asyncio.gather(*(writer.wait_closed() for writer in ended), return_exceptions=True)
