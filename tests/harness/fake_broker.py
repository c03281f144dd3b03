"""A stand-in for a broker on a real socket, for unit tests and faults: what it answers is a table by api key."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from struct import pack, unpack_from
from threading import Thread
from typing import Final, TypeVar

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 3, 17, 18, 36
MAX_REQUEST_BYTES: Final = 100 * 2**20
USER: Final = "sluice"
PASSWORD: Final = "canary-5f1d"

Answer = Callable[[bytes], bytes | None]
"""From a request without its size to the frame that answers it; empty: no answer, None: the connection ends."""


class FakeBroker:
    """Metadata v1 names ``brokers``, node id → (host, port). ``otherwise`` is for api keys that are not in ``answers``.

    With a ``password``, only ApiVersions is answered before a login by SASL/PLAIN.
    """

    def __init__(self, password: str | None = None) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self.port = 0
        self.password = password
        self.mechanisms = ["PLAIN"]
        self.requests: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.taken = 0
        """Connections, also those that have ended."""
        self.silent = False
        self.once = False
        """The second request of a connection ends it."""
        self.padding = 0
        """Bytes behind the four zeros of an answer ``otherwise``."""
        self.answers: dict[int, Answer] = {
            PRODUCE: lambda request: reply(request, bytes(8)),  # no topic, and the throttle time
            METADATA: self._metadata,
            SASL_HANDSHAKE: self._handshake,
            API_VERSIONS: lambda request: reply(request, bytes(6)),
            SASL_AUTHENTICATE: self._authenticate,
        }
        self.otherwise: Answer = lambda request: reply(request, bytes(4 + self.padding))

    @property
    def asked(self) -> list[int]:
        """The api keys of all requests."""
        return [unpack_from(">h", request)[0] for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        self.connections.append(writer)
        known, answered = self.password is None, False
        try:
            # A TLS handshake, read as a size, is larger.
            while (size := int.from_bytes(await reader.readexactly(4), "big")) <= MAX_REQUEST_BYTES:
                request = await reader.readexactly(size)
                self.requests.append(request)
                (api_key,) = unpack_from(">h", request)
                if answered and self.once:
                    break
                if not known and api_key not in (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE):
                    break
                answer = self.answers.get(api_key, self.otherwise)(request)
                if answer is None:
                    break
                known = known or (api_key == SASL_AUTHENTICATE and answer[8:10] == b"\0\0")
                answered = True
                if not self.silent:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _metadata(self, request: bytes) -> bytes:
        nodes = b"".join(
            pack(">ih", node_id, len(host)) + host.encode() + pack(">ih", port, -1)
            for node_id, (host, port) in self.brokers.items()
        )
        return reply(request, pack(">i", len(self.brokers)) + nodes + pack(">ii", 1, 0))

    def _handshake(self, request: bytes) -> bytes:
        offered = b"".join(pack(">h", len(name)) + name.encode() for name in self.mechanisms)
        known = any(request.endswith(pack(">h", len(name)) + name.encode()) for name in self.mechanisms)
        return reply(request, pack(">hi", 0 if known else 33, len(self.mechanisms)) + offered)

    def _authenticate(self, request: bytes) -> bytes:
        if request.endswith(f"\0{USER}\0{self.password}".encode()):
            return reply(request, pack(">hhi", 0, -1, 0))
        return reply(request, pack(">hh", 58, 20) + b"Wrong\nuser, password" + pack(">i", 0))

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


def frame(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


def correlation_id(request: bytes) -> int:
    return int.from_bytes(request[4:8], "big")


def reply(request: bytes, body: bytes) -> bytes:
    """Return a response frame with the request's correlation id."""
    return frame(request[4:8] + body)


def fake_broker(
    *, password: str | None = None, tls: ssl.SSLContext | None = None, port: int = 0
) -> AbstractAsyncContextManager[FakeBroker]:
    return serving(FakeBroker(password), tls, port)


@asynccontextmanager
async def serving(broker: B, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[B]:
    """Serve on loopback; unless the broker has ``brokers``, its Metadata names itself as node 1."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port, ssl=tls)
    broker.port = server.sockets[0].getsockname()[1]
    broker.brokers = broker.brokers or {1: ("127.0.0.1", broker.port)}
    try:
        yield broker
    finally:
        server.close()
        for _ in range(5):  # who was accepted a moment ago comes to be served
            await asyncio.sleep(0)
        ended = broker.drop()
        await server.wait_closed()
        await asyncio.gather(*(writer.wait_closed() for writer in ended), return_exceptions=True)


@contextmanager
def serving_in_thread(broker: B, tls: ssl.SSLContext | None = None) -> Iterator[B]:
    """Serve from a loop of its own, for programs and clients that block."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    served = serving(broker, tls)
    try:
        yield asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
