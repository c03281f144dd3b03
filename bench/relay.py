"""The cheapest proxy that uvloop allows: chunk in, chunk out, with back-pressure, and no look at a byte.

What Sluice costs above this is what knowing Kafka costs. With a certificate it ends TLS as uvloop does.
``python -m bench.relay PORT BROKER_PORT [CERTIFICATE KEY]``
"""

import asyncio
import ssl
import sys
from typing import cast

import uvloop

HOST = "127.0.0.1"
HIGH_WATER_BYTES = 64 * 1024


class End(asyncio.Protocol):
    """One end of a pair; what arrives before the other end stands is kept."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: End | None = None
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

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset is as good as an end here
        if self.other and self.other.transport:
            self.other.transport.close()


class ClientEnd(End):
    """What a client is connected to; connects the broker's end."""

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
            _, broker = await loop.create_connection(End, HOST, self._broker_port)
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
        lambda: ClientEnd(broker_port, tasks), HOST, port, backlog=4096, ssl=tls
    )
    await server.serve_forever()


def context(certificate: str, key: str) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate, key)
    return made


if __name__ == "__main__":
    port, broker_port, *files = sys.argv[1:]
    uvloop.run(serve(int(port), int(broker_port), context(*files) if files else None))
