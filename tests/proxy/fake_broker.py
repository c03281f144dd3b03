"""A stand-in for a broker on a real socket: it answers Metadata v1 with what it was told, and echoes the rest."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from struct import pack, unpack_from
from typing import TypeVar

from tests.proxy.playbook import frame


class FakeBroker:
    """``brokers``: node id → (host, port) that Metadata names. Any other request is answered with four zero bytes."""

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self.port = 0
        self.requests: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []
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
        api_key, _, correlation_id = unpack_from(">hhi", payload)
        if api_key == 0 and not self.answers_produce:
            return b""
        return frame(pack(">i", correlation_id) + (self._metadata() if api_key == 3 else bytes(4 + self.padding)))

    def _metadata(self) -> bytes:
        nodes = b"".join(
            pack(">ih", node_id, len(host)) + host.encode() + pack(">ih", port, -1)
            for node_id, (host, port) in self.brokers.items()
        )
        return pack(">i", len(self.brokers)) + nodes + pack(">ii", 1, 0)

    def drop(self) -> list[asyncio.StreamWriter]:
        """End every connection, as a broker that goes down; return what they were."""
        ended, self.connections = self.connections, []
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


B = TypeVar("B", bound=FakeBroker)


def fake_broker(port: int = 0) -> AbstractAsyncContextManager[FakeBroker]:
    return serving(FakeBroker(), port)


@asynccontextmanager
async def serving(broker: B, port: int = 0) -> AsyncIterator[B]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for _ in range(5):  # who was accepted a moment ago comes to be served
            await asyncio.sleep(0)
        ended = broker.drop()
        await server.wait_closed()
        await asyncio.gather(*(writer.wait_closed() for writer in ended), return_exceptions=True)
