"""The first bytes of a connection: peeked at before TLS, a PROXY header taken, the head of a request recognized.

Nothing is spent on a client before it has sent them. They are never quoted in messages: they may well be a password.
"""

import asyncio
import socket
from collections import deque

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, FrameSplitter
from proxy.edge.arrival import Arrival, LeftEarly
from proxy.edge.proxy_protocol import MAX_HEADER_BYTES, Header, least_bytes, parse
from proxy.runtime.tasks import later, on_readable
from proxy.session.policies.login import GSSAPI_TOKEN
from proxy.session.serving import API_VERSIONS_KEY
from proxy.session.worker_state import WorkerState


async def read_source(arrival: Arrival) -> None:
    """Take the client's address from the PROXY header. Raises as ``read_header``."""
    header = await read_header(arrival.client)
    arrival.peer = header.source or arrival.peer
    arrival.names_source = False


async def read_header(client: socket.socket) -> Header:
    """Read the PROXY header and not a byte beyond it. Raises ProtocolError for anything else, or LeftEarly."""
    begun, least = bytearray(), 1
    while True:
        peeked = await peek(client, MAX_HEADER_BYTES)
        if not peeked and begun:
            raise ProtocolError(Cause.PROXY_PROTOCOL_INVALID, "the connection ends within the PROXY protocol header")
        if not peeked:
            raise LeftEarly
        before = len(begun)
        begun.extend(peeked)
        header = None
        if len(begun) >= least:
            data = bytes(begun)
            header, least = parse(data), least_bytes(data)
        # An incomplete header is consumed: left in the socket, it would keep the socket readable for ever.
        client.recv(len(peeked) if header is None else header.length_bytes - before)
        if header is not None:
            return header


async def peek(client: socket.socket, most_bytes: int) -> bytes:
    """Wait for bytes and return them unread, b"" at the end of the stream. Raises LeftEarly if it is reset."""
    loop = asyncio.get_running_loop()
    while True:
        readable = loop.create_future()
        on_readable(client, "wake a waiter for first bytes", _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(client)
        try:
            return client.recv(most_bytes, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError:
            raise LeftEarly from None


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def is_request(begun: bytes, worker: WorkerState, *, authenticated: bool) -> bool:
    """Whether ``begun`` holds the header of a request that is served; False if more bytes are needed.

    Raises ProtocolError if it begins with anything else. On listeners that demand SASL, tokens without a request header
    may come first (GSSAPI of Kafka 0.9).
    """
    limit = worker.request_limit if authenticated else worker.unauthenticated_request_limit
    if len(begun) >= REQUEST_HEAD.size:  # the splitter below decides the same, and reports what is wrong
        size, key_version, _, _ = REQUEST_HEAD.unpack_from(begun)
        if key_version in worker.served and REQUEST_HEAD.size - 4 <= size <= limit:
            return True
    _, _, heads = FrameSplitter(REQUEST_HEAD, limit).split(begun, 1)
    if not heads:
        return False
    key_version = heads[0][1]
    api_key = key_version >> 16
    begins_gssapi = not authenticated and api_key >> 8 == GSSAPI_TOKEN
    if key_version not in worker.served and api_key != API_VERSIONS_KEY and not begins_gssapi:
        worker.answerer(key_version)
    return True


class Pacer:
    """Rate limiter: ``in_a_turn`` callers pass in each turn of the loop, first come, first served.

    A handshake takes the loop a millisecond. After a restart all clients reconnect at once; connected clients must not
    wait until the last handshake is done.
    """

    def __init__(self, in_a_turn: int) -> None:
        self._in_a_turn = in_a_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._passed = 0
        self._begun = False

    async def turn(self) -> None:
        """Wait for this caller's turn."""
        if not self._begun:
            self._begun = True
            later(0.0, "begin TLS handshakes", self._next, otherwise=self._restart)
        if self._passed < self._in_a_turn and not self._waiting:
            self._passed += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _next(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < self._in_a_turn:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled
                first.set_result(None)
                self._passed += 1
        self._begun = bool(self._passed)
        if self._begun:
            later(0.0, "begin TLS handshakes", self._next, otherwise=self._restart)

    def _restart(self) -> None:
        """Schedule the next batch again after ``_next`` has failed."""
        later(0.0, "begin TLS handshakes", self._next)
