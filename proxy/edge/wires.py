"""A session's two connections, to the client and to the broker, as asyncio protocols: they move bytes, and know
nothing of Kafka. The loop's own transport does TLS: the interface is the same, with the exceptions noted below.
"""

import asyncio
import ssl
from collections.abc import Callable
from socket import SO_RCVBUF, SOL_SOCKET
from typing import Final, cast

from protocol.errors import ProtocolError
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.kernel import LOST, SocketOptions, TcpState, keep_alive, look_at, wake
from proxy.runtime.clock import now_ms
from proxy.runtime.faults import contained, report
from proxy.runtime.tasks import later
from proxy.session.flow import BROKER, CLIENT
from proxy.session.session import Session

HIGH_WATER_BYTES: Final = {CLIENT: 64 * 1024, BROKER: 256 * 1024}
"""Size of the write buffer from which the other connection is paused. uvloop reads up to 250 kB at once: with the lower
mark, a client that reads nothing is owed one such chunk instead of two. Fetches are as fast with it, produces are not.
"""

TLS_WRITE_BYTES: Final = 48 * 1024
"""Plaintext encrypted at once: three records. With 250 kB at once the first records have left the cache before they
are sent, and each connection keeps a buffer of that size (fetch of 1 MiB: 1.2 times HAProxy's cost at once, 0.95 in
parts)."""

LINGER_S = 10.0
"""How long a closed connection may make no progress, in taking its buffer or in ending TLS, before it is aborted."""


class AsyncioWire:
    """A ``Wire`` over an asyncio transport, safe to call in any state of the transport.

    It does not inherit asyncio.Protocol: a compiled subclass would have a ``__dict__``.
    """

    __deletable__ = ("_feed",)  # for mypyc
    __slots__ = ("_cut_off", "_feed", "_refused", "_session", "_side", "_transport", "is_open", "slot", "tls", "write")

    _feed: Callable[[bytes, int], None]
    _session: Session | None
    """Unset before the session exists, and again after this connection is lost."""
    _transport: asyncio.Transport
    _cut_off: asyncio.TimerHandle | None
    is_open: bool
    """Connected, and its socket not closed yet."""
    tls: ssl.SSLObject | None
    write: Callable[[bytes], None]

    def __init__(self, side: str, slot: ConnectionSlot) -> None:
        self._side = side
        self.slot = slot
        self._refused: ProtocolError | None = None
        """Why it was closed without a session."""
        self.is_open = False
        self._cut_off = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        try:
            self._made(transport)
        except Exception as fault:  # noqa: BLE001  event loops handle one differently
            self.failed("connection_made", fault)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._lost(exc)
        except Exception as fault:  # noqa: BLE001  likewise
            self.failed("connection_lost", fault)

    def _made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES[self._side])
        self.is_open = True
        self.write = self._transport.write
        self.tls = transport.get_extra_info("ssl_object")
        if self.tls is not None:
            # While this connection is paused, the socket must not be read either. By default TLS reads 256 KiB ahead,
            # and uvloop drops them when the peer closes.
            transport.set_read_buffer_limits(high=1, low=0)  # type: ignore[attr-defined]  # TLS alone has it

    # uvloop raises RuntimeError when a transport that is closing is paused or resumed.
    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if not self.is_open:
            return
        if not self._transport.is_closing():  # asyncio's TLS transport cannot be closed twice
            self._transport.close()
        if self._cut_off is None and (self.tls is not None or self._transport.get_write_buffer_size()):
            self._linger()

    def abort(self) -> None:
        if self.is_open:
            self._transport.abort()

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self.is_open else 0

    def look(self) -> TcpState:
        connection = self._socket if self.is_open else None
        return LOST if connection is None else look_at(connection)

    @property
    def _socket(self) -> SocketOptions | None:
        """The socket, None once it is closed: uvloop's transport drops it before ``connection_lost``."""
        return cast("SocketOptions | None", self._transport.get_extra_info("socket"))

    def _lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset counts as a close
        self.is_open = False
        if self._cut_off is not None:
            self._cut_off.cancel()
        self.slot.descriptor_closed()

    def _part(self, session: Session) -> None:
        """Drop the session, so that it is freed without the garbage collector."""
        del self._feed
        self._session = None
        session.end_lost()

    def _linger(self) -> None:
        acked_bytes = self.look().acked_bytes
        self._cut_off = later(
            LINGER_S,
            "abort a lingering connection",
            self._cut_off_unless_past,
            acked_bytes,
            otherwise=self._transport.abort,
        )

    def _cut_off_unless_past(self, acked_bytes: int) -> None:
        """Abort if the peer has taken nothing since ``acked_bytes``."""
        if self.look().acked_bytes > acked_bytes:
            self._linger()
        else:
            self._transport.abort()

    def failed(self, where: str, error: Exception) -> None:
        """Record an internal error: it ends this session and no other."""
        where = f"{type(self).__name__}.{where}"
        report(where, error)
        if self._session is not None:
            contained(where, self._session.abort)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            if self._session is not None:
                contained("reject", self._session.reject, self._side, error, otherwise=self.abort)
            else:
                self._refused = error
                self.abort()
        except Exception as fault:  # noqa: BLE001  likewise
            self.failed("data_received", fault)

    def pause_writing(self) -> None:
        self._blocked("pause_writing", True)

    def resume_writing(self) -> None:
        self._blocked("resume_writing", False)

    def _blocked(self, where: str, is_blocked: bool) -> None:
        try:
            if self._session is not None:
                self._session.blocked(self._side, is_blocked)
        except Exception as fault:  # noqa: BLE001  likewise
            self.failed(where, fault)


class ClientWire(AsyncioWire):
    """The connection to a client: until its session is there, it keeps what has come.

    ``is_request`` says whether the bytes so far begin with a whole head of a request, or raises ProtocolError.
    """

    __deletable__ = ("_begun", "_first_request", "_is_request")  # for mypyc
    __slots__ = ("_begun", "_first_request", "_is_request", "_receive_buffer_bytes")

    def __init__(
        self, is_request: Callable[[bytes], bool], slot: ConnectionSlot, receive_buffer_bytes: int = -1
    ) -> None:
        super().__init__(CLIENT, slot)
        self._is_request = is_request
        self._begun = b""
        self._first_request: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session = None
        self._receive_buffer_bytes = receive_buffer_bytes

    def _made(self, transport: asyncio.BaseTransport) -> None:
        super()._made(transport)
        self._feed = self._greet
        if self.tls is not None:
            self.write = self._write_encrypted

    async def first_request(self) -> None:
        """Wait until it is there, or the client has left. Raises ProtocolError for anything else."""
        await self._first_request
        if self._refused is not None:
            raise self._refused

    def begin(self, session: Session) -> None:
        """Feed ``session`` with the first request and all that follows."""
        begun, self._session, self._feed = self._begun, session, session.requests.feed
        del self._is_request, self._begun, self._first_request
        self.resume_reading()
        self.data_received(begun)

    def _greet(self, data: bytes, now_ms: int) -> None:  # noqa: ARG002  as ``feed`` of a session
        if self._refused is not None:
            return
        self._begun += data
        if self._is_request(self._begun):
            self.pause_reading()
            wake(self._first_request)

    def bound_receive_buffer(self) -> None:
        """Limit the kernel's receive buffer to ``limits.socket_receive_buffer`` from now on."""
        if self._receive_buffer_bytes > 0 and (connection := self._socket) is not None:
            connection.setsockopt(SOL_SOCKET, SO_RCVBUF, self._receive_buffer_bytes)  # doubled, for its own overhead
            self._receive_buffer_bytes = -1

    def has_finished(self) -> bool:
        """Whether the client has closed its side, as the kernel sees it: known even while paused."""
        return self.look().peer_finished

    def eof_received(self) -> bool:
        try:
            if self._session is not None:
                self._session.client_finished()
        except Exception as fault:  # noqa: BLE001  as above
            self.failed("eof_received", fault)
            return False
        if self.tls is not None and self._cut_off is None:
            self._linger()
        # Without TLS answers may still follow, and the session closes this connection. With TLS the transport is
        # closing already: asyncio has no TLS half-close.
        return self.tls is None and self._session is not None and not self._session.closed

    def _lost(self, exc: Exception | None) -> None:
        super()._lost(exc)
        session = self._session
        if session is None:
            wake(self._first_request)
            return
        if self.tls is not None and exc is None:
            session.blocked(CLIENT, False)  # output from now on goes nowhere
            session.client_finished()
        else:
            session.close()
        self._part(session)

    def _write_encrypted(self, data: bytes) -> None:
        """Write, unless TLS is over: a client that has finished cannot get its answers then."""
        if self._transport.is_closing():
            return
        if len(data) <= TLS_WRITE_BYTES:
            self._transport.write(data)
            return
        parts = memoryview(data)
        for start in range(0, len(data), TLS_WRITE_BYTES):
            self._transport.write(parts[start : start + TLS_WRITE_BYTES])


class BrokerWire(AsyncioWire):
    """The connection to a broker."""

    __slots__ = ("_is_kept_alive",)

    def __init__(self, session: Session, slot: ConnectionSlot) -> None:
        super().__init__(BROKER, slot)
        self._session = session
        self._feed = session.answers.feed
        self._is_kept_alive = False

    def keep_alive(self) -> None:
        """Turn on keepalive: not at the start, as it takes a tenth of what a short connection does."""
        if not self._is_kept_alive and self.is_open and (connection := self._socket) is not None:
            self._is_kept_alive = True
            keep_alive(connection)

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the peer, as numbers."""
        name = self._transport.get_extra_info("peername")
        return name[0], name[1]

    def eof_received(self) -> bool:
        return False  # a half-close of the broker is a close: connection_lost follows

    def _lost(self, exc: Exception | None) -> None:
        super()._lost(exc)
        if self._session is not None:
            self._session.broker_lost()  # the client learns it by its own close
            self._part(self._session)
