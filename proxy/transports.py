"""The two ends of a session as asyncio protocols: they move bytes and know nothing of Kafka.

With TLS it is the loop's own transport that encrypts: the same calls, but for what is said of TLS below.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar, TypeVarTuple, cast

from protocol.errors import ProtocolError
from proxy.clock import now_ms
from proxy.faults import contained, note
from proxy.in_flight import BROKER, CLIENT
from proxy.session import Session
from proxy.tasks import later

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HIGH_WATER_BYTES = 256 * 1024
"""Bytes written and not yet taken by the peer, from which on the other end is not read. uvloop reads up to 250 kB at
once, so a lower mark would stop and start the other end with every large chunk."""

TLS_WRITE_BYTES = 48 * 1024
"""How much is encrypted at once: three records. Of 250 kB the encrypted ones have left the cache before they are sent,
and each connection keeps a buffer of that size (fetch of 1 MiB: 1.2 times HAProxy's cost at once, 0.95 in parts)."""

LINGER_S = 10.0
"""How long a closed end may take to send what was written, and to end TLS, before it is cut off."""


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


class _End(asyncio.Protocol):
    """A ``Wire`` over an asyncio transport, safe to call whatever state the transport is in."""

    __slots__ = ("_cut_off", "_feed", "_lost", "_session", "_transport", "tls", "write")

    _feed: Callable[[bytes, int], None]
    _session: Session | None
    _transport: asyncio.Transport
    _cut_off: asyncio.TimerHandle | None
    _lost: bool
    tls: ssl.SSLObject | None
    write: Callable[[bytes], None]

    @_alone
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._cut_off = None
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
            self._cut_off = later(LINGER_S, "cut off what lingers", self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset is as good as an end here
        self._lost = True
        if self._cut_off is not None:
            self._cut_off.cancel()

    def failed(self, where: str, error: Exception) -> None:
        """Take a fault of ours: this session ends, and no other notices."""
        note(where, error)
        if self._session is not None:
            contained(where, self._session.abort)
        self._transport.abort()


class ClientEnd(_End):
    """What a client is connected to. ``begin`` makes its session, or returns None to refuse it."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[["ClientEnd"], Session | None]) -> None:
        self._begin = begin
        self._session = None

    @_alone
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.tls is not None:
            self.write = self._write_encrypted
        session = self._session = self._begin(self)
        del self._begin  # it holds what brought the client here, which is over
        if session is None:
            self.abort()
        else:
            self._feed = session.requests.feed

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            contained("reject", cast("Session", self._session).reject, CLIENT, error, otherwise=self.abort)
        except Exception as error:  # noqa: BLE001  as _alone does, without a call for each chunk
            self.failed("ClientEnd.data_received", error)

    @_alone
    def eof_received(self) -> bool:
        self._finished()
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
        super().connection_lost(exc)
        if self.tls is not None and exc is None:
            self._finished()
        elif self._session is not None:
            self._session.close()

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

    __slots__ = ()

    _session: Session

    def __init__(self, session: Session) -> None:
        self._session = session
        self._feed = session.answers.feed

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            contained("reject", self._session.reject, BROKER, error, otherwise=self.abort)
        except Exception as error:  # noqa: BLE001  as _alone does, without a call for each chunk
            self.failed("BrokerEnd.data_received", error)

    @_alone
    def pause_writing(self) -> None:
        self._session.broker_blocked(True)

    @_alone
    def resume_writing(self) -> None:
        self._session.broker_blocked(False)

    @_alone
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._session.broker_lost()  # the client learns it by its own close
