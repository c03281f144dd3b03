"""A client that sends, and reads only when it is told to: what asyncio's own clients would not do."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.proxy.front import TIMEOUT_S

_LITTLE = 32 * 1024


class Deaf:
    """Its receive buffer is small, so that what is not read soon stays with the proxy."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._loop = asyncio.get_running_loop()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE)
        self.socket.setblocking(False)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None
        if context is not None:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def connect(self, port: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._loop.sock_connect(self.socket, ("127.0.0.1", port))
            while self._tls is not None:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self._flush()
                    self._incoming.write(await self._loop.sock_recv(self.socket, _LITTLE))
            await self._flush()

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            if self._tls is None:
                await self._loop.sock_sendall(self.socket, data)
            else:
                self._tls.write(data)
                await self._flush()

    async def receive(self, wanted: int) -> bytes:
        """Return ``wanted`` bytes, or fewer if the proxy closes before."""
        received = b""
        async with asyncio.timeout(TIMEOUT_S):
            while len(received) < wanted:
                if self._tls is not None:
                    with suppress(ssl.SSLWantReadError):
                        decrypted = self._tls.read(wanted - len(received))
                        if not decrypted:
                            break
                        received += decrypted
                        continue
                try:
                    data = await self._loop.sock_recv(self.socket, wanted - len(received))
                except ConnectionError:
                    break
                if not data:
                    break
                if self._tls is None:
                    received += data
                else:
                    self._incoming.write(data)
        return received

    async def say_goodbye(self) -> None:
        """Send TLS's close_notify, and nothing more: the connection stays open."""
        assert self._tls is not None
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._flush()

    def finish(self) -> None:
        """Close the side that sends."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    async def _flush(self) -> None:
        await self._loop.sock_sendall(self.socket, self._outgoing.read())


@asynccontextmanager
async def deaf(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[Deaf]:
    """Connect; with ``context`` through TLS."""
    client = Deaf(context)
    try:
        await client.connect(port)
        yield client
    finally:
        client.socket.close()
