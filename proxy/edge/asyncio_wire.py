"""Base of a session's two connections, to the client and to the broker, as asyncio protocols.

The loop's own transport does TLS: the interface is the same, with the exceptions noted below.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import wraps
from typing import Final, Protocol, TypeVar, TypeVarTuple, cast

from protocol.errors import ProtocolError
from proxy.edge.kernel import LOST, SocketOptions, TcpState, look_at
from proxy.runtime.faults import contained, note
from proxy.runtime.tasks import later

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HIGH_WATER_BYTES: Final = 256 * 1024
"""Size of the write buffer from which the other connection is paused. uvloop reads up to 250 kB at once, so a lower
mark would pause and resume with every large chunk."""

LINGER_S = 10.0
"""How long a closed connection may make no progress, in taking its buffer or in ending TLS, before it is aborted."""


WireT = TypeVar("WireT", bound="AsyncioWire")


def contain_fault(callback: Callable[[WireT, *Ts], T]) -> Callable[[WireT, *Ts], T | None]:
    """Decorate a callback so that an exception ends its own session only: event loops handle one differently."""

    @wraps(callback)
    def guarded(self: WireT, *args: *Ts) -> T | None:
        try:
            return callback(self, *args)
        except Exception as error:  # noqa: BLE001  all errors are contained here
            self.failed(callback.__qualname__, error)
            return None

    return guarded


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


class DescriptorOwner(Protocol):
    """The owner of a connection's descriptor."""

    def descriptor_closed(self) -> None:
        """Note that the descriptor is closed, for whatever reason."""
        ...


class ChunkConsumer(Protocol):
    """A consumer of received chunks: one direction of a session."""

    def feed(self, data: bytes, now_ms: int) -> None: ...


class SessionHandle(Protocol):
    """The part of a session that its connections call."""

    @property
    def closed(self) -> bool: ...
    @property
    def requests(self) -> ChunkConsumer: ...
    @property
    def answers(self) -> ChunkConsumer: ...

    def client_blocked(self, blocked: bool) -> None: ...
    def client_finished(self) -> None: ...
    def broker_blocked(self, blocked: bool) -> None: ...
    def broker_lost(self) -> None: ...
    def reject(self, side: str, error: ProtocolError) -> None: ...
    def close(self) -> None: ...
    def end_lost(self) -> None: ...
    def abort(self) -> None: ...


class AsyncioWire:
    """A ``Wire`` over an asyncio transport, safe to call in any state of the transport.

    It does not inherit asyncio.Protocol: a compiled subclass would have a ``__dict__``.
    """

    __deletable__ = ("_feed",)  # for mypyc
    __slots__ = ("_cut_off", "_feed", "_lost", "_session", "_transport", "owner", "tls", "write")

    _feed: Callable[[bytes, int], None]
    _session: SessionHandle | None
    """Unset before the session exists, and again after this connection is lost."""
    _transport: asyncio.Transport
    _cut_off: asyncio.TimerHandle | None
    _lost: bool
    tls: ssl.SSLObject | None
    write: Callable[[bytes], None]

    def __init__(self, owner: DescriptorOwner) -> None:
        self.owner = owner
        self._lost = True  # it is not connected yet
        self._cut_off = None

    def _made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._lost = False
        self.write = self._transport.write
        self.tls = transport.get_extra_info("ssl_object")
        if self.tls is not None:
            # While this connection is paused, the socket must not be read either. By default TLS reads 256 KiB ahead,
            # and uvloop drops them when the peer closes.
            cast("_TlsTransport", transport).set_read_buffer_limits(high=1, low=0)

    # uvloop raises RuntimeError when a transport that is closing is paused or resumed.
    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._lost:
            return
        if not self._transport.is_closing():  # asyncio's TLS transport cannot be closed twice
            self._transport.close()
        if self._cut_off is None and (self.tls is not None or self._transport.get_write_buffer_size()):
            self._linger()

    def abort(self) -> None:
        if not self._lost:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        """Connected, and its socket not closed yet."""
        return not self._lost

    def look(self) -> TcpState:
        """Return the kernel's view of this connection."""
        connection = None if self._lost else self._socket
        return LOST if connection is None else look_at(connection)

    @property
    def _socket(self) -> SocketOptions | None:
        """The socket, None once it is closed: uvloop's transport drops it before ``connection_lost``."""
        return cast("SocketOptions | None", self._transport.get_extra_info("socket"))

    def _gone(self) -> None:
        self._lost = True
        if self._cut_off is not None:
            self._cut_off.cancel()
        self.owner.descriptor_closed()

    def _part(self, session: SessionHandle) -> None:
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
        note(where, error)
        if self._session is not None:
            contained(where, self._session.abort)
        self._transport.abort()
