"""The two ends of a session as asyncio protocols: they move bytes and know nothing of Kafka.

With TLS it is the loop's own transport that encrypts: the same calls, but for what is said of TLS below.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import wraps
from typing import Final, Protocol, TypeVar, TypeVarTuple, cast

from protocol.errors import ProtocolError
from proxy.edge.kernel import LOST, Options, Tcp, bound_receive_buffer, keep_alive, look_at
from proxy.runtime.clock import now_ms
from proxy.runtime.faults import contained, note
from proxy.runtime.tasks import later
from proxy.session.wires import BROKER, CLIENT

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HIGH_WATER_BYTES: Final = 256 * 1024
"""Bytes written and not yet taken by the peer, from which on the other end is not read. uvloop reads up to 250 kB at
once, so a lower mark would stop and start the other end with every large chunk."""

TLS_WRITE_BYTES: Final = 48 * 1024
"""How much is encrypted at once: three records. Of 250 kB the encrypted ones have left the cache before they are sent,
and each connection keeps a buffer of that size (fetch of 1 MiB: 1.2 times HAProxy's cost at once, 0.95 in parts)."""

LINGER_S = 10.0
"""How long a closed end may take none of what was written, or not end TLS, before it is cut off."""


_EndT = TypeVar("_EndT", bound="_End")


def _alone(callback: Callable[[_EndT, *Ts], T]) -> Callable[[_EndT, *Ts], T | None]:
    """Let a callback that raises end its own session only; what the loop would do differs from loop to loop."""

    @wraps(callback)
    def alone(self: _EndT, *args: *Ts) -> T | None:
        try:
            return callback(self, *args)
        except Exception as error:  # noqa: BLE001  that nothing gets past is what this is for
            self.failed(callback.__qualname__, error)
            return None

    return alone


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


class Holder(Protocol):
    """Whose descriptor an end has."""

    def end_lost(self) -> None:
        """Take note that it is closed, however that came."""
        ...


class Side(Protocol):
    """What takes the chunks of an end, one of a session's two."""

    def feed(self, data: bytes, now_ms: int) -> None: ...


class Behind(Protocol):
    """A session, as its ends see it."""

    @property
    def closed(self) -> bool: ...
    @property
    def requests(self) -> Side: ...
    @property
    def answers(self) -> Side: ...

    def client_blocked(self, blocked: bool) -> None: ...
    def client_finished(self) -> None: ...
    def broker_blocked(self, blocked: bool) -> None: ...
    def broker_lost(self) -> None: ...
    def reject(self, side: str, error: ProtocolError) -> None: ...
    def close(self) -> None: ...
    def end_lost(self) -> None: ...
    def abort(self) -> None: ...


class _End:
    """A ``Wire`` over an asyncio transport, safe to call whatever state the transport is in.

    An asyncio protocol without asyncio's base class, with which a compiled one would have a ``__dict__``.
    """

    __deletable__ = ("_feed",)  # for mypyc
    __slots__ = ("_cut_off", "_feed", "_lost", "_session", "_transport", "holder", "tls", "write")

    _feed: Callable[[bytes, int], None]
    _session: Behind | None
    """None before there is one, and again when this end is lost."""
    _transport: asyncio.Transport
    _cut_off: asyncio.TimerHandle | None
    _lost: bool
    tls: ssl.SSLObject | None
    write: Callable[[bytes], None]

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._lost = True  # it is not connected yet
        self._cut_off = None

    def _made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._lost = False
        self.write = self._transport.write
        self.tls = transport.get_extra_info("ssl_object")
        if self.tls is not None:
            # While this end is not read, the socket must not be read either. By default TLS reads 256 KiB ahead, and
            # uvloop throws them away when the peer closes.
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
        """It is connected, and its socket not closed yet."""
        return not self._lost

    def look(self) -> Tcp:
        """Return what the kernel knows of this end."""
        connection = None if self._lost else self._socket
        return LOST if connection is None else look_at(connection)

    @property
    def _socket(self) -> Options | None:
        """None when it is closed: uvloop's transport forgets it before it says that it is lost."""
        return cast("Options | None", self._transport.get_extra_info("socket"))

    def _gone(self) -> None:
        self._lost = True
        if self._cut_off is not None:
            self._cut_off.cancel()
        self.holder.end_lost()

    def _part(self, session: Behind) -> None:
        """Forget the session, so that what is over is freed without the collector."""
        del self._feed
        self._session = None
        session.end_lost()

    def _linger(self) -> None:
        acked_bytes = self.look().acked_bytes
        self._cut_off = later(
            LINGER_S, "cut off what lingers", self._cut_off_unless_past, acked_bytes, otherwise=self._transport.abort
        )

    def _cut_off_unless_past(self, acked_bytes: int) -> None:
        """Cut off a peer that has taken nothing since ``acked_bytes``."""
        if self.look().acked_bytes > acked_bytes:
            self._linger()
        else:
            self._transport.abort()

    def failed(self, where: str, error: Exception) -> None:
        """Take a fault of ours: this session ends, and no other notices."""
        note(where, error)
        if self._session is not None:
            contained(where, self._session.abort)
        self._transport.abort()


class ClientEnd(_End):
    """What a client is connected to.

    ``begin`` is given all that came so far and makes the session, or returns None where more has to come first. It
    raises ProtocolError to refuse the client, which ``refused`` then tells.
    """

    __deletable__ = ("_begin", "_begun")  # for mypyc
    __slots__ = ("_begin", "_begun", "_receive_buffer_bytes", "refused")

    def __init__(
        self,
        begin: Callable[["ClientEnd", bytes], Behind | None],
        holder: Holder,
        receive_buffer_bytes: int = -1,
    ) -> None:
        super().__init__(holder)
        self._begin = begin
        self._begun = b""
        self._session = None
        self._receive_buffer_bytes = receive_buffer_bytes
        self.refused: ProtocolError | None = None

    @_alone
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made(transport)
        self._feed = self._greet
        if self.tls is not None:
            self.write = self._write_encrypted

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            if self._session is not None:
                contained("reject", self._session.reject, CLIENT, error, otherwise=self.abort)
            else:
                self.refused = error
                self.abort()
        except Exception as fault:  # noqa: BLE001  as _alone does, without a call for each chunk
            self.failed("ClientEnd.data_received", fault)

    def _greet(self, data: bytes, now_ms: int) -> None:
        if self.refused is not None:
            return
        begun = self._begun + data
        session = self._session = self._begin(self, begun)
        if session is None:
            self._begun = begun
            return
        del self._begin, self._begun  # they hold what brought the client here, which is over
        self._feed = session.requests.feed
        self._feed(begun, now_ms)

    def bound_receive_buffer(self) -> None:
        """Have the kernel receive no more than ``limits.socket_receive_buffer`` ahead of what is read, from now on."""
        if self._receive_buffer_bytes > 0 and (connection := self._socket) is not None:
            bound_receive_buffer(connection, self._receive_buffer_bytes)
            self._receive_buffer_bytes = -1

    @_alone
    def eof_received(self) -> bool:
        self._finished()
        if self.tls is not None and self._cut_off is None:
            self._linger()
        # Without TLS answers may still be on their way, and the session closes this end. With TLS the transport is
        # closing already: asyncio's knows no half-close.
        return self.tls is None and self._session is not None and not self._session.closed

    @_alone
    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(True)

    @_alone
    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(False)

    @_alone
    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        if self.tls is not None and exc is None:
            if self._session is not None and not self._session.closed:
                self._session.client_blocked(False)  # what is written now goes nowhere
            self._finished()
        elif self._session is not None:
            self._session.close()
        if self._session is not None:
            self._part(self._session)

    def _finished(self) -> None:
        """The client has sent all that it wants to: what is held back of it is still worked on."""
        if self._session is not None and not self._session.closed:
            self._session.client_finished()

    def _write_encrypted(self, data: bytes) -> None:
        """Write, unless TLS is over: then the answers of a client that has finished have nowhere to go."""
        if self._transport.is_closing():
            return
        if len(data) <= TLS_WRITE_BYTES:
            self._transport.write(data)
            return
        parts = memoryview(data)
        for start in range(0, len(data), TLS_WRITE_BYTES):
            self._transport.write(parts[start : start + TLS_WRITE_BYTES])


class BrokerEnd(_End):
    """What connects a session to its broker."""

    __slots__ = ("_is_kept_alive",)

    def __init__(self, session: Behind, holder: Holder) -> None:
        super().__init__(holder)
        self._session = session
        self._feed = session.answers.feed
        self._is_kept_alive = False

    def keep_alive(self) -> None:
        """Have the kernel ask whether the broker is there: not from the beginning, for most that is short is busy."""
        if not self._is_kept_alive and (connection := self._socket) is not None:
            self._is_kept_alive = True
            keep_alive(connection)

    @_alone
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made(transport)

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port that it is connected to, as numbers."""
        name = self._transport.get_extra_info("peername")
        return name[0], name[1]

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            if self._session is not None:
                contained("reject", self._session.reject, BROKER, error, otherwise=self.abort)
        except Exception as fault:  # noqa: BLE001  as _alone does, without a call for each chunk
            self.failed("BrokerEnd.data_received", fault)

    def eof_received(self) -> bool:
        return False  # a broker that has closed its side has closed: connection_lost says so

    @_alone
    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.broker_blocked(True)

    @_alone
    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.broker_blocked(False)

    @_alone
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset is as good as an end here
        self._gone()
        if self._session is not None:
            self._session.broker_lost()  # the client learns it by its own close
            self._part(self._session)
