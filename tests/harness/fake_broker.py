"""A stand-in for a broker on a real socket, for unit tests and faults: what it answers is a table by api key."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from struct import pack, unpack_from
from threading import Thread
from typing import Final, TypeVar

PRODUCE, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 0, 3, 17, 18, 36
MAX_REQUEST_BYTES: Final = 100 * 2**20
USER: Final = "sluice"
PASSWORD: Final = "canary-5f1d"
_GOODBYE_S: Final = 1.0

Answer = Callable[[bytes], bytes | None]
"""From a request without its size to the frame that answers it; empty: no answer, None: the connection ends."""


class FakeBroker:
    """Metadata names ``brokers``, node id → (host, port). ``otherwise`` is for api keys that are not in ``answers``.

    With a ``password``, only ApiVersions is answered before a login by SASL/PLAIN. ``requests`` and ``connections`` are
    those of clients, ``own`` the requests of a proxy's own.
    """

    def __init__(self, password: str | None = None) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self.by_client: dict[str, dict[int, tuple[str, int]]] = {}
        """By client-id: the brokers that this client is told instead."""
        self.cluster_id = "of-the-test"
        self.newest_versions = 4
        """The newest ApiVersions that it knows."""
        self.port = 0
        self.password = password
        self.mechanisms = ["PLAIN"]
        self.requests: list[bytes] = []
        self.own: list[bytes] = []
        self.asked: list[int] = []
        """The api keys of all requests."""
        self.connections: list[asyncio.StreamWriter] = []
        self.watching: list[asyncio.StreamWriter] = []
        """The proxy's own connections."""
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
            API_VERSIONS: self._versions,
            SASL_AUTHENTICATE: self._authenticate,
        }
        self.otherwise: Answer = lambda request: reply(request, bytes(4 + self.padding))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        self.connections.append(writer)
        known, answered = self.password is None, False
        try:
            # A TLS handshake, read as a size, is larger.
            while (size := int.from_bytes(await reader.readexactly(4), "big")) <= MAX_REQUEST_BYTES:
                request = await reader.readexactly(size)
                (api_key,) = unpack_from(">h", request)
                self.asked.append(api_key)
                is_own = client_id_of(request) == "sluice"
                (self.own if is_own else self.requests).append(request)
                if is_own and not answered and writer in self.connections:
                    self.connections.remove(writer)
                    self.watching.append(writer)
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
        (version,) = unpack_from(">h", request, 2)
        brokers = self.by_client.get(client_id_of(request), self._brokers())
        return reply(request, metadata(version, brokers, self.cluster_id))

    def _brokers(self) -> dict[int, tuple[str, int]]:
        """Return its brokers; if that is itself alone, those of a stand-in that names it."""
        if self.brokers == {1: ("127.0.0.1", self.port)}:
            for other in _SERVING:
                if other is not self and any(port == self.port for _, port in other.brokers.values()):
                    return other.brokers
        return self.brokers

    def _versions(self, request: bytes) -> bytes:
        (version,) = unpack_from(">h", request, 2)
        if version > self.newest_versions:
            return reply(request, pack(">hi", 35, 0))
        if version < 5:
            return reply(request, bytes(6))
        node_id = next((node_id for node_id, (_, port) in self._brokers().items() if port == self.port), -1)
        is_meant = request.endswith(self.cluster_id.encode() + pack(">i", node_id) + b"\0")  # KIP-1242
        return reply(request, pack(">h", 0 if is_meant else 129) + b"\1" + bytes(5))

    def _handshake(self, request: bytes) -> bytes:
        offered = b"".join(pack(">h", len(name)) + name.encode() for name in self.mechanisms)
        known = any(request.endswith(pack(">h", len(name)) + name.encode()) for name in self.mechanisms)
        return reply(request, pack(">hi", 0 if known else 33, len(self.mechanisms)) + offered)

    def _authenticate(self, request: bytes) -> bytes:
        if request.endswith(f"\0{USER}\0{self.password}".encode()):
            return reply(request, pack(">hhi", 0, -1, 0))
        return reply(request, pack(">hh", 58, 20) + b"Wrong\nuser, password" + pack(">i", 0))

    async def end_watching(self) -> None:
        """Let the proxy close its own connections; a test on a busy machine may end before they are seen to close."""
        own = [writer for writer in self.watching if not writer.is_closing() and writer.can_write_eof()]
        for writer in own:
            writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.gather(*(writer.wait_closed() for writer in own), return_exceptions=True)

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


B = TypeVar("B", bound=FakeBroker)

_SERVING: list[FakeBroker] = []


def frame(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


def client_id_of(request: bytes) -> str:
    length = max(unpack_from(">h", request, 8)[0], 0) if len(request) >= 10 else 0
    return request[10 : 10 + length].decode("utf-8", "replace")


def metadata(version: int, brokers: Mapping[int, tuple[str, int]], cluster_id: str) -> bytes:
    """Return the body of an answer to Metadata v1 or v2 that names ``brokers``, and no topic."""
    nodes = b"".join(
        pack(">ih", node_id, len(host)) + host.encode() + pack(">ih", port, -1)
        for node_id, (host, port) in brokers.items()
    )
    of_cluster = pack(">h", len(cluster_id)) + cluster_id.encode() if version > 1 else b""
    return pack(">i", len(brokers)) + nodes + of_cluster + pack(">ii", 1, 0)


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
    """Serve on loopback; unless the broker has ``brokers``, its Metadata names itself as node 1, or what another that
    names it does.
    """
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port, ssl=tls)
    broker.port = server.sockets[0].getsockname()[1]
    broker.brokers = broker.brokers or {1: ("127.0.0.1", broker.port)}
    _SERVING.append(broker)
    try:
        yield broker
    finally:
        _SERVING.remove(broker)
        server.close()
        for _ in range(5):  # who was accepted a moment ago comes to be served
            await asyncio.sleep(0)
        await broker.end_watching()
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
