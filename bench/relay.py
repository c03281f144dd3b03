"""The cheapest proxy that uvloop allows: it copies chunks, with back-pressure, and reads no byte.

Sluice's cost above this is the cost of handling Kafka's protocol. With a certificate it terminates TLS as uvloop does.
``python -m bench.relay PORT BROKER_PORT [CERTIFICATE KEY]``
"""

import asyncio
import ssl
import sys
from typing import cast

import uvloop

HOST = "127.0.0.1"
HIGH_WATER_BYTES = 64 * 1024


class Side(asyncio.Protocol):
    """One side of a relayed connection; data that arrives before the other side is connected is buffered."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset is treated like a close
        if self.other and self.other.transport:
            self.other.transport.close()


class ClientSide(Side):
    """The client's side; connects the broker's side."""

    def __init__(self, broker_port: int, tasks: set[asyncio.Task[None]]) -> None:
        super().__init__()
        self._broker_port = broker_port
        self._tasks = tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        assert self.transport is not None  # noqa: S101  set by connection_made
        loop = asyncio.get_running_loop()
        try:
            _, broker = await loop.create_connection(Side, HOST, self._broker_port)
        except OSError:
            self.transport.abort()
            return
        self.other, broker.other = broker, self
        for data in self.early:
            self.data_received(data)
        self.early.clear()


async def serve(port: int, broker_port: int, tls: ssl.SSLContext | None) -> None:
    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: ClientSide(broker_port, tasks), HOST, port, backlog=4096, ssl=tls
    )
    await server.serve_forever()


def context(certificate: str, key: str) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate, key)
    return made


if __name__ == "__main__":
    port, broker_port, *files = sys.argv[1:]
    uvloop.run(serve(int(port), int(broker_port), context(*files) if files else None))
